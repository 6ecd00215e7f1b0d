"""A scripted Tavily: a real HTTP server that speaks POST /search.

    with FakeTavily(script) as fake:
        TavilySearch("key", fake.base_url, ...)

A script is called with the payload and returns a `Reply`, best made by `results` and `api_error`.
"""

from collections.abc import Callable
from typing import Any

from tests.fakes.http_fake import FakeServer, Reply

Script = Callable[[dict[str, Any]], Reply]


def results(*found: dict[str, Any], **misbehaviour: Any) -> Reply:
    """A good reply with these results: dicts with title, url, content, score."""
    body = {"query": "", "results": list(found), "response_time": 0.1, "images": [], "answer": None}
    return Reply(body=body, **misbehaviour)


def api_error(status: int, message: str = "scripted error", **options: Any) -> Reply:
    """An error in Tavily's form. 432: plan limit, 433: pay-as-you-go limit."""
    return Reply(status=status, body={"detail": {"error": message}}, **options)


def default_script(payload: dict[str, Any]) -> Reply:
    """As many results as were asked for, at most three, all about the query."""
    query = payload["query"]
    count = min(int(payload.get("max_results") or 3), 3)
    return results(
        *(
            {
                "title": f"Result {number} for {query}",
                "url": f"https://example.org/{number}",
                "content": f"The web says about {query}: fact number {number}.",
                "score": round(1.0 - number / 10, 2),
            }
            for number in range(1, count + 1)
        )
    )


class FakeTavily(FakeServer):
    def __init__(self, script: Script = default_script) -> None:
        super().__init__()
        self.script = script

    @property
    def base_url(self) -> str:
        return self.root_url

    def reply_to(self, path: str, payload: dict[str, Any], headers: dict[str, str]) -> tuple[str, Reply]:
        if path != "/search":
            return "unknown_path", api_error(404, f"no such path: {path}")
        if "authorization" not in headers:
            return "search", api_error(401, "no key")  # keyless mode is what must never happen
        return "search", self.script(payload)
