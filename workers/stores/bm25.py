"""BM25 as sparse vectors: which words a passage has, how much each weighs, and what a question asks for.

A sparse vector maps a word's 32-bit id to a weight. A passage carries the part of BM25 that depends on it
alone (how often, in how long a text); the store multiplies by how rare a word is in the collection (IDF).
The dot product of a passage with a question, each word of which weighs 1, is then BM25's score.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

from workers.models.words import stop_words

Sparse = dict[int, float]  # word id (0..2**32-1) -> weight

K1 = 1.5
B = 0.6
# Words in a passage of usual length. A constant, not the collection's mean: a passage's weights must not
# change when others are ingested, or a second ingest would have to rewrite every vector.
AVERAGE_WORDS = 80.0
MAX_CHARS = 20_000  # of a question: far beyond what one asks, and it bounds a request

_LAST_MARK = 0x20000  # no combining mark of a script in use lies beyond

# Scripts written without blanks (or, as Korean, with endings glued on) are taken by pairs of characters.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
)


@lru_cache(maxsize=1)
def _runs() -> re.Pattern[str]:
    """A run of an unspaced script, or a run of other letters and digits with the marks that belong to them.

    `\\w` leaves combining marks out, and would cut every word of Hindi to pieces.
    """
    marks = [chr(c) for c in range(_LAST_MARK) if unicodedata.category(chr(c)) in ("Mn", "Mc")]
    marked = "".join(_ranges(marks))
    return re.compile(f"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\\W_][{marked}]*)+")


def _ranges(characters: list[str]) -> Iterator[str]:
    start = before = characters[0]
    for character in characters[1:]:
        if ord(character) != ord(before) + 1:
            yield f"{start}-{before}"
            start = character
        before = character
    yield f"{start}-{before}"


def tokens(text: str) -> list[str]:
    """The words of `text` that count, in order, with repetitions: NFKC, lower case, no stop words."""
    found: list[str] = []
    for match in _runs().finditer(unicodedata.normalize("NFKC", text)):
        run = match[0].lower()
        if _unspaced().match(run):
            found += [run[at : at + 2] for at in range(max(len(run) - 1, 1))]
        elif run not in stop_words() and (len(run) > 1 or run.isdigit()):
            found.append(_singular(run))
    return found


def _singular(word: str) -> str:
    """Without an English plural ending. More stemming than that was tried, and won nothing for certain."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("sses", "xes", "ches", "shes")) else word[:-1]


@lru_cache(maxsize=1)
def _unspaced() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]")


@lru_cache(maxsize=100_000)
def word_id(word: str) -> int:
    """Two words of a collection share one by chance only (one in four billion); then both count."""
    return int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=4).digest(), "big")


def passage_vector(title: str, text: str) -> Sparse:
    """The weights of a passage's words, its title's included; empty when it has none that counts."""
    words = Counter(word_id(word) for word in tokens(f"{title}\n{text}"))
    norm = K1 * (1 - B + B * words.total() / AVERAGE_WORDS)
    return {word: round(count * (K1 + 1) / (count + norm), 6) for word, count in sorted(words.items())}


def question_vector(text: str) -> Sparse:
    """Each word of a question once, weighing 1; empty when it has none that counts."""
    return dict.fromkeys(sorted({word_id(word) for word in tokens(text[:MAX_CHARS])}), 1.0)
