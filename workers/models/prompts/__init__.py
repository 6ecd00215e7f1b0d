"""The prompts, one file a role: the system part, a line `=== human ===`, the human part.

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

ROLES = ("relevance_grader", "query_rewriter", "answer_generator")
MAX_DOCUMENT_CHARS = 8_000
MAX_QUESTION_CHARS = 12_000
_SEPARATOR = "\n=== human ===\n"
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_FENCE = re.compile(r"<(?=/?\s*(?:document|question)\b)", re.IGNORECASE)


@dataclass(frozen=True)
class Prompt:
    """`version` is the first 12 hex digits of the SHA-256 of `text`, the whole file."""

    role: str
    version: str
    system: str
    human: str
    text: str

    def render(self, **values: str) -> tuple[str, str]:
        """(system, human) with each `{name}` replaced. KeyError when a value is missing."""
        return _fill(self.system, values), _fill(self.human, values)


def _fill(template: str, values: dict[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], template)


def parse_prompt(role: str, text: str) -> Prompt:
    """ValueError unless the text has exactly one separator with something on both sides."""
    parts = text.split(_SEPARATOR)
    if len(parts) != 2 or not all(part.strip() for part in parts):
        raise ValueError(f"The prompt {role} needs one line '=== human ===' between its two parts.")
    version = sha256(text.encode()).hexdigest()[:12]
    return Prompt(role, version, parts[0].strip(), parts[1].strip(), text)


@lru_cache(maxsize=1)
def load_prompts() -> dict[str, Prompt]:
    """Every prompt by its role, read once a process."""
    folder = Path(__file__).parent
    return {role: parse_prompt(role, (folder / f"{role}.md").read_text(encoding="utf-8")) for role in ROLES}


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
