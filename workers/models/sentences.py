"""Cutting a document into sentences that occur verbatim in it, in many languages, without a model."""

import re

from workers.models.words import languages

MAX_CHARS = 400  # a "sentence" beyond this is a table or a list without stops; it is cut at a blank
_MIN_LETTERS = 8

_END = re.compile(
    r"""
    (?<![.!?…])[.!?…]++["'”’»)\]]*+(?=\s)  # a stop, closing marks, then white space
    | [。！？．｡]+[”’」』）]*              # full-width stops need no blank after them
    | [।؟۔]+(?=\s)                      # Devanagari, Arabic, Urdu
    | \n
    """,
    re.VERBOSE,
)
_LIST_ITEM = re.compile(r"\s*(?:[-*•‣·–]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)]|#{1,6})\s")
_LABEL = r"(?:[^\W_][\w'’()-]*[ \t]+){0,2}[^\W_][\w'’()-]*:[ \t]"  # "colour: ", "Opening hours: "
_LABELLED = re.compile(_LABEL)
_LABELLED_LINE = re.compile(r"[ \t]*\n[ \t]*" + _LABEL)
_LAST_WORD = re.compile(r"([^\s(\[\"'“‘«]+)$")
_ABBREVIATIONS = frozenset(languages()["abbreviations"].split())
_MONTHS = tuple(languages()["months_after_ordinals"].split())


def sentences(text: str, min_letters: int = _MIN_LETTERS) -> list[str]:
    """The sentences of `text` in order, each a verbatim part of it without white space at its ends.

    Pieces of fewer than `min_letters` letters or digits (bullets, page numbers) are left out.
    """
    found: list[str] = []
    start = 0
    for match in _END.finditer(text):
        if match.end() <= start or not _ends_here(text, start, match):
            continue
        _keep(found, text[start : match.end()], min_letters)
        start = match.end()
    _keep(found, text[start:], min_letters)
    return found


def _ends_here(text: str, start: int, match: re.Match[str]) -> bool:
    mark = match.group()
    if mark == "\n":
        return _line_ends_sentence(text, match.start())
    if mark[0] != "." or mark.startswith("..") or _LABELLED_LINE.match(text, match.end()):
        return True
    word = _LAST_WORD.search(text, max(start, match.start() - 40), match.start())
    before = word.group(1) if word else ""
    if before.lower() in _ABBREVIATIONS or (len(before) == 1 and before.isalpha()):
        return False  # "Dr. Who", "J. S. Bach"
    if before.isdigit() and not text[start : match.start() - len(before)].strip():
        return False  # the number of a list item: "1. Press the button"
    following = text[match.end() : match.end() + 40].lstrip()
    if before.isdigit() and following.lower().startswith(_MONTHS):
        return False  # "am 3. Oktober"
    return not following or not following[0].islower()  # "approx. twenty": no sentence begins in lower case


def _line_ends_sentence(text: str, at: int) -> bool:
    """A wrapped line goes on in lower case; anything else ends the sentence: a heading, an item, `name: value`,
    an empty line."""
    following = text[at + 1 : at + 200]
    if not following.strip() or not following.split("\n", 1)[0].strip():
        return True
    if _LIST_ITEM.match(following) or _LABELLED.match(following.lstrip()):
        return True
    first = following.lstrip()[0]
    wrapped = first.islower() or (text[max(at - 1, 0) : at] in (",", "-", "–"))
    return not wrapped


def _keep(found: list[str], piece: str, min_letters: int) -> None:
    piece = piece.strip()
    while len(piece) > MAX_CHARS:
        cut = max(piece.rfind(mark, MAX_CHARS // 2, MAX_CHARS) for mark in ("; ", ", ", " ", "\n"))
        cut = cut + 1 if cut > 0 else MAX_CHARS
        _keep(found, piece[:cut], min_letters)
        piece = piece[cut:].strip()
    if sum(character.isalnum() for character in piece) >= min_letters or _dense(piece):
        found.append(piece)


def _dense(piece: str) -> bool:
    """Chinese, Japanese and Korean say much in few characters."""
    return sum("\u3040" <= character <= "\ud7af" for character in piece) >= 3
