"""Content words of a question, for several languages: what is left without question and stop words."""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

# A word, a number with its separators ("3.14", "2024-05-01"), or a name with marks inside ("C++", "o'brien").
_WORD = re.compile(r"\d+(?:[.,:/-]\d+)*%?|[^\W_]+(?:['’.&_-][^\W_]+)*(?:\+\+|#)?")
_LANGUAGES_FILE = Path(__file__).parent / "languages.json"
_NO_BLANKS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")


@lru_cache(maxsize=1)
def languages() -> dict[str, Any]:
    """`languages.json`: stop words by language, abbreviations, and months that follow ordinals."""
    content: dict[str, Any] = json.loads(_LANGUAGES_FILE.read_text(encoding="utf-8"))
    return content


@lru_cache(maxsize=1)
def stop_words() -> frozenset[str]:
    """Lower-case stop and question words of all languages together."""
    return frozenset(word for group in languages()["stop_words"].values() for word in group.split())


def words(text: str) -> list[str]:
    """Every word and number of `text`, as written, in order."""
    return _WORD.findall(text)


def is_content(word: str) -> bool:
    """Whether a word says what a text is about. Capitals within a sentence do not save a stop word,
    except when all letters are capitals ("IT", "WHO", "US"): that is a name."""
    if any(character.isdigit() for character in word):
        return True
    if len(word) > 1 and word.isupper():
        return True
    lowered = word.lower().replace("’", "'")
    return lowered not in stop_words() and (len(word) > 1 or bool(_NO_BLANKS.match(word)))


def content_words(text: str) -> list[str]:
    """The content words of `text`, as written, in order, with repetitions."""
    return [word for word in words(text) if is_content(word)]


def content_set(text: str) -> frozenset[str]:
    """Content words in lower case; scripts written without blanks are taken by pairs of characters."""
    found: set[str] = set()
    for word in content_words(text):
        lowered = word.lower()
        if _NO_BLANKS.search(lowered) and len(lowered) > 2:
            found.update(lowered[at : at + 2] for at in range(len(lowered) - 1))
        else:
            found.add(lowered)
    return frozenset(found)
