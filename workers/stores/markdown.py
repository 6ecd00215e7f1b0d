"""Markdown seen as sections under their headings. Headings inside code fences are code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ATX = re.compile(r"^ {0,3}(?P<marks>#{1,6})(?:[ \t]+(?P<title>.*?))?(?:[ \t]+#+)?[ \t]*$")
_SETEXT = re.compile(r"^ {0,3}(?P<mark>=+|-{2,})[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})")
_LONGEST = 1000  # characters of a heading's line: what is longer is text, and would keep the patterns busy
_MARKUP = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|[*`]+")


@dataclass(frozen=True)
class Section:
    headings: tuple[str, ...]  # from the outermost to the section's own; empty before the first heading
    text: str  # without the heading line


def sections(text: str) -> Iterator[Section]:
    """The sections of `text` in order, those with a heading and no text of their own included."""
    path: list[tuple[int, str]] = []
    body: list[str] = []
    fence = ""
    for line in text.split("\n"):
        fence, fenced = _after(line, fence)
        heading = None if fenced else _heading(line, body)
        if heading is None:
            body.append(line)
            continue
        level, title, underlined = heading
        if underlined:
            body.pop()  # the line above was the title
        if path or any(part.strip() for part in body):
            yield Section(tuple(name for _, name in path), "\n".join(body).strip("\n"))
        while path and path[-1][0] >= level:
            path.pop()
        path.append((level, title))
        body = []
    yield Section(tuple(name for _, name in path), "\n".join(body).strip("\n"))


def _after(line: str, fence: str) -> tuple[str, bool]:
    """(the fence that is open after `line`, whether `line` belongs to code)."""
    found = _FENCE.match(line)
    if not fence:
        return (found["fence"], True) if found else ("", False)
    closes = found is not None and found["fence"].startswith(fence) and line.strip() == found["fence"]
    return ("" if closes else fence), True


def _heading(line: str, body: list[str]) -> tuple[int, str, bool] | None:
    """(level, title, whether the title is the line above) when `line` makes a heading."""
    if len(line) > _LONGEST:
        return None
    atx = _ATX.match(line)
    if atx:
        title = _plain(atx["title"] or "")
        return (len(atx["marks"]), title, False) if title else None
    above = body[-1].strip() if body else ""
    alone = len(body) < 2 or not body[-2].strip()  # else a table row or a paragraph's last line
    if above and len(above) <= _LONGEST and alone and not above.startswith(("-", "*", "|", ">", "```")):
        setext = _SETEXT.match(line)
        if setext:
            return (1 if setext["mark"][0] == "=" else 2), _plain(above), True
    return None


def _plain(title: str) -> str:
    return _MARKUP.sub(lambda match: match[1] or "", title).strip()
