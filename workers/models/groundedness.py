"""How well documents support an answer, without a model that reads: shared words and numbers, and the
cosine of the nearest sentence, weighed by a logistic regression (`groundedness.json` says on what).

It sees whether an answer speaks of what the documents speak of, not whether a "not" was lost on the way.
A statement that stands in the documents letter by letter is supported, whatever the rest says.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from workers.models.minilm import VectorSource
from workers.models.sentences import sentences
from workers.models.words import content_set, content_words, words

_MARK = re.compile(r"\[\d{1,4}\]")
_QUOTES = "\"'“”„«»‘’ \t\n"
_SPACE = re.compile(r"\s+")
_MAX_STATEMENTS = 60
_MAX_SENTENCES = 400  # of the documents together
_STEM = 5  # letters; "founded" and "founder", "Leiden" and "Leidens" count as one word


@dataclass(frozen=True)
class Support:
    """`score` in 0..1; `weakest` is the statement with the least support, "" when all are copies."""

    score: float
    weakest: str = ""


def statements(answer: str) -> list[str]:
    """The sentences of an answer without its source marks and outer quotation marks."""
    found: list[str] = []
    for part in _MARK.split(answer):
        part = part.strip(_QUOTES)
        found += [piece.strip(_QUOTES) for piece in sentences(part)] or ([part] if part else [])
    return [piece for piece in found if any(map(str.isalnum, piece))][:_MAX_STATEMENTS]


def flat(text: str) -> str:
    """For comparing letter by letter: one blank between words, no difference of case."""
    return _SPACE.sub(" ", text).strip().casefold()


class _Evidence:
    """The documents, taken apart once for all statements of an answer."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self.flat = "\n".join(flat(text) for text in texts)
        self.words = frozenset[str]().union(*(_stems(text) for text in texts))
        self.tokens = frozenset[str]().union(*(_tokens(text) for text in texts))

    def sentences(self) -> list[str]:
        found = [sentence for text in self._texts for sentence in (sentences(text) or [text])]
        return [sentence for sentence in found if sentence.strip()][:_MAX_SENTENCES]


def _tokens(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in words(text))


def _stems(text: str) -> frozenset[str]:
    return frozenset(word if _is_number(word) else word[:_STEM] for word in content_set(text))


def _is_number(word: str) -> bool:
    return any(map(str.isdigit, word))


def _share(wanted: frozenset[str], there: frozenset[str]) -> float:
    return len(wanted & there) / len(wanted) if wanted else 1.0


def features(source: VectorSource, answer: str, texts: Sequence[str]) -> tuple[dict[str, float], str]:
    """The five numbers that are weighed, each in 0..1, and the statement with the least support.

    All are 1 and the statement is "" when every statement is a copy. ValueError without any statement.
    """
    found, evidence = statements(answer), _Evidence(texts)
    if not found:
        raise ValueError("the answer holds no statement")
    others = [statement for statement in found if flat(statement) not in evidence.flat]
    near = dict(zip(others, _nearest(source, others, evidence), strict=True))
    rows = [_row(statement, evidence, near.get(statement)) for statement in found]
    weights = [max(len(_stems(statement)), 1) for statement in found]
    means = np.average(np.array(rows), axis=0, weights=weights)
    missing = sum(word.lower() not in evidence.tokens for text in others for word in words(text))
    values = dict(zip(("words", "tokens", "numbers", "nearest"), map(float, means), strict=True))
    values["few"] = 1 / (1 + missing / len(found))
    weakest = min(others, key=lambda text: sum(_row(text, evidence, near[text])), default="")
    return values, weakest


def _row(statement: str, evidence: _Evidence, nearest: float | None) -> list[float]:
    """words, tokens, numbers, nearest. `nearest` is None for a copy."""
    if nearest is None:
        return [1.0] * 4
    numbers = frozenset(word for word in content_words(statement) if _is_number(word))
    return [
        _share(_stems(statement), evidence.words),
        _share(_tokens(statement), evidence.tokens),
        _share(frozenset(word.lower() for word in numbers), evidence.tokens),
        nearest,
    ]


def _nearest(source: VectorSource, found: Sequence[str], evidence: _Evidence) -> list[float]:
    """The cosine of each statement with the sentence nearest to it, in 0..1."""
    sentences_there = evidence.sentences() if found else []
    if not sentences_there:
        return [0.0] * len(found)
    rows = source.vectors([*found, *sentences_there])
    near = np.clip(rows[: len(found)] @ rows[len(found) :].T, 0.0, 1.0)
    return [float(value) for value in near.max(axis=1)]


@lru_cache(maxsize=1)
def _weights() -> dict[str, float]:
    path = Path(__file__).with_name("groundedness.json")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {name: float(value) for name, value in content["weights"].items()}


def support(source: VectorSource, answer: str, texts: Sequence[str]) -> Support:
    """How far `texts` carry `answer`. A copy scores 1; no statement, or no text, scores 0."""
    if not statements(answer) or not any(text.strip() for text in texts):
        return Support(0.0)
    values, weakest = features(source, answer, texts)
    if not weakest:
        return Support(1.0)
    weights = _weights()
    total = weights["constant"] + sum(weights[name] * value for name, value in values.items())
    return Support(1 / (1 + math.exp(-total)), weakest)
