"""The prompts, one file each: the system part, a line `=== human ===`, the human part.

A role has one prompt for each thing it is asked for: `query_rewriter.md` is the query for the web,
`query_rewriter.vectorstore.md` the one for the store. All of a role's prompts are frozen with a plan.

The version is made from the text itself, so an edited prompt can never pass for the old one. Values are
put in by one pass over the template: braces inside a question or document stay what they are.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from shared.clean import clean_text, one_line
from workers.models.roles import Document

ROLES = (
    "relevance_grader",
    "query_rewriter",
    "answer_generator",
    "groundedness_grader",
    "answer_grader",
    "router",
    "knowledge_extractor",
    "feedback_writer",
    "apology_writer",
)
NAMES = (  # `<role>` or `<role>.<what it is asked for>`
    "relevance_grader",
    "query_rewriter",  # for the web, first try
    "query_rewriter.again",  # for the web, with feedback
    "query_rewriter.vectorstore",
    "answer_generator",
    "answer_generator.again",  # with feedback
    "answer_generator.direct",  # without documents
    "groundedness_grader",
    "answer_grader",
    "router",
    "knowledge_extractor",
    "feedback_writer.on_query",
    "feedback_writer.on_answer",
    "apology_writer",
)
MAX_DOCUMENT_CHARS = 8_000
MAX_QUESTION_CHARS = 12_000
MAX_ANSWER_CHARS = 12_000
MAX_DESCRIPTION_CHARS = 4_000
MAX_FEEDBACK_CHARS = 1_000  # of one remark
MAX_REMARKS = 5  # of several tries, the last ones
_SEPARATOR = "\n=== human ===\n"
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_TAGS = "document|question|query|answer|description|feedback|tried"
_FENCE = re.compile(rf"<(?=/?\s*(?:{_TAGS})\b)", re.IGNORECASE)


@dataclass(frozen=True)
class Prompt:
    """`version` is the first 12 hex digits of the SHA-256 of `text`, the whole file."""

    name: str
    version: str
    system: str
    human: str
    text: str

    @property
    def role(self) -> str:
        return role_of(self.name)

    def render(self, **values: str) -> tuple[str, str]:
        """(system, human) with each `{name}` replaced. KeyError when a value is missing."""
        return _fill(self.system, values), _fill(self.human, values)


def _fill(template: str, values: dict[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], template)


def role_of(name: str) -> str:
    """The role that the prompt of this name belongs to."""
    return name.partition(".")[0]


def names_of(role: str) -> list[str]:
    """The names of all prompts of a role."""
    return [name for name in NAMES if role_of(name) == role]


def parse_prompt(name: str, text: str) -> Prompt:
    """ValueError unless the text has exactly one separator with something on both sides."""
    parts = text.split(_SEPARATOR)
    if len(parts) != 2 or not all(part.strip() for part in parts):
        raise ValueError(f"The prompt {name} needs one line '=== human ===' between its two parts.")
    version = sha256(text.encode()).hexdigest()[:12]
    return Prompt(name, version, parts[0].strip(), parts[1].strip(), text)


@lru_cache(maxsize=1)
def load_prompts() -> dict[str, Prompt]:
    """Every prompt by its name, read once a process."""
    folder = Path(__file__).parent
    return {name: parse_prompt(name, (folder / f"{name}.md").read_text(encoding="utf-8")) for name in NAMES}


def as_data(text: str, limit: int) -> str:
    """Foreign text for a prompt: clean, at most `limit` characters, unable to close the tag around it."""
    text = clean_text(text).strip()
    if len(text) > limit:
        text = text[:limit].rstrip() + " …"
    return _FENCE.sub("‹", text)


def as_title(title: str) -> str:
    """A title that stays inside its attribute."""
    return as_data(one_line(title, 200), 200).replace('"', "'").replace(">", "›")


def numbered_documents(documents: Sequence[Document], limit: int = MAX_DOCUMENT_CHARS) -> str:
    """The documents in tags with their numbers, from 1."""
    blocks = [
        f'<document n="{number}" title="{as_title(document["title"])}">\n'
        f"{as_data(document['text'], limit)}\n</document>"
        for number, document in enumerate(documents, start=1)
    ]
    return "\n\n".join(blocks)


def feedback_block(feedback: Sequence[str]) -> str:
    """The last remarks on earlier tries in one tag, oldest first; empty without any."""
    remarks = [as_data(one_line(remark), MAX_FEEDBACK_CHARS) for remark in feedback if remark.strip()]
    if not remarks:
        return ""
    lines = "\n".join(f"- {remark}" for remark in remarks[-MAX_REMARKS:])
    return f"<feedback>\n{lines}\n</feedback>"
