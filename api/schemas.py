"""What goes over the wire: the bodies of requests and answers."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Alive(BaseModel):
    status: Literal["alive"]


class FieldProblem(BaseModel):
    """One thing that is wrong with a request."""

    where: str = Field(description="Place in the request: `body.settings.k`, `query.limit`.")
    message: str


class Problem(BaseModel):
    """An error, as RFC 9457 has it. Its media type is `application/problem+json`."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="`urn:cragline:problem:<word>`, or `about:blank`.")
    title: str
    status: int
    detail: str = Field(description="What was wrong, and what to do about it.")
    instance: str | None = Field(None, description="The path that was asked for.")
    row: int | None = Field(None, description="The row or line of the file that cannot be taken.")
    errors: list[FieldProblem] | None = None


PROBLEM: dict[str, Any] = {
    "model": Problem,
    "description": "What was wrong, and what to do about it.",
    "content": {"application/problem+json": {}},
}
