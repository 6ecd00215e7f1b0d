"""How often the right passage is found: by meaning, by words, and by both.

    .venv/bin/python benchmarks/retrieval.py CORPUS.jsonl QUESTIONS.jsonl [--relevant FIELD] [--only FIELD]
                                             [--index FIELD] [--by FIELD] [--top 5] [--cache FOLDER]

The corpus has `id`, `title` and `text`; it is cut, embedded (MiniLM) and stored as `cragline ingest` does,
in a local store of its own, and each question is searched as a pipeline does. A passage counts as found when
one of its chunks is among the best, each passage counted once: the first `--top` different passages.
hit@5 is the share of questions with a relevant passage among them, recall@5 the mean share of a question's
relevant passages. The floor printed beside them is plain BM25 over whole passages (k1 1.5, b 0.75, title
and text, words as they are).

`--relevant` names the field that holds the relevant id or ids; `passages` may hold objects with `id` and
`relevant`. `--only` names a boolean field: questions without it are left out. `--index` does so for the
corpus. `--by` adds a table by the values of a field, such as the language. `--cache` keeps the vectors.
"""

import argparse
import hashlib
import json
import math
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from shared.plan import Retrieval
from shared.settings import Settings
from workers.models.minilm import MiniLM
from workers.stores.chunks import split
from workers.stores.loaders import load
from workers.stores.local_owner import own_store

NAME = "benchmark"
Rank = Callable[[int], list[str]]  # position of a question -> different passages, best first


def read(path: Path, only: str | None) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file if line.strip()]
    return [record for record in records if only is None or record[only]]


def relevant_ids(question: dict[str, Any], field: str) -> set[str]:
    found = question[field]
    if isinstance(found, str):
        return {found}
    return {
        one if isinstance(one, str) else one["id"] for one in found if isinstance(one, str) or one["relevant"]
    }


def embed(texts: Sequence[str], cache: Path | None) -> list[list[float]]:
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()
    file = cache / f"{digest[:32]}.npy" if cache else None
    if file is not None and file.exists():
        kept: list[list[float]] = np.load(file).tolist()
        return kept
    vectors = MiniLM().vectors(texts)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, vectors)
    made: list[list[float]] = vectors.tolist()
    return made


def floor(corpus: list[dict[str, Any]], questions: list[dict[str, Any]]) -> Rank:
    """BM25 as a textbook has it, over whole passages."""

    def words(text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())

    passages = [Counter(words(f"{one['title']} {one['text']}")) for one in corpus]
    mean = sum(one.total() for one in passages) / len(passages)
    having = Counter(word for one in passages for word in one)

    def score(asked: list[str], passage: Counter[str]) -> float:
        norm = 1.5 * (0.25 + 0.75 * passage.total() / mean)
        return sum(
            math.log((len(passages) - having[word] + 0.5) / (having[word] + 0.5) + 1)
            * passage[word] * 2.5 / (passage[word] + norm)
            for word in asked if word in passage
        )  # fmt: skip

    def rank(number: int) -> list[str]:
        asked = words(questions[number]["question"])
        scored = [(score(asked, passage), one["id"]) for passage, one in zip(passages, corpus, strict=True)]
        return [name for value, name in sorted(scored, key=lambda pair: -pair[0]) if value > 0]

    return rank


def measure(rank: Rank, questions: list[dict[str, Any]], field: str, top: int) -> list[tuple[float, float]]:
    """(hit, recall) of each question."""
    values = []
    for number, question in enumerate(questions):
        wanted = relevant_ids(question, field)
        found = wanted & set(rank(number)[:top])
        values.append((float(bool(found)), len(found) / len(wanted)))
    return values


def mean(values: Sequence[tuple[float, float]]) -> str:
    hit, recall = (sum(column) / len(values) for column in zip(*values, strict=True))
    return f"{hit:.3f} | {recall:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--relevant", default="relevant_ids")
    parser.add_argument("--only")
    parser.add_argument("--index")
    parser.add_argument("--by")
    parser.add_argument("--top", type=int, default=5)
    parser.add_argument("--cache", type=Path)
    arguments = parser.parse_args()
    corpus, questions = read(arguments.corpus, arguments.index), read(arguments.questions, arguments.only)
    asked = embed([question["question"] for question in questions], arguments.cache)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder) / "home", _env_file=None)  # type: ignore[call-arg]
        file = Path(folder) / "corpus.jsonl"
        file.write_text("".join(json.dumps(one) + "\n" for one in corpus), encoding="utf-8")
        chunks = list(split(load(file), settings.chunk_tokens, settings.chunk_overlap))
        store = own_store(settings)
        store.ensure_collection(NAME, MiniLM.dimension)
        store.upsert(NAME, chunks, embed([chunk.text for chunk in chunks], arguments.cache))
        print(f"{len(corpus)} passages in {len(chunks)} chunks, {len(questions)} questions\n")

        def ranking(mode: Retrieval) -> Rank:
            def rank(number: int) -> list[str]:
                text = questions[number]["question"]
                # enough chunks for `top` passages, even when the best has many
                found = store.search(NAME, asked[number], 10 * arguments.top, text=text, mode=mode)
                return list(dict.fromkeys(one["source"].partition("#")[2] for one in found))

            return rank

        ranks = {"BM25 floor": floor(corpus, questions)} | {
            mode: ranking(mode) for mode in get_args(Retrieval)
        }
        by: dict[str, dict[str, list[tuple[float, float]]]] = {}
        print(
            f"| retrieval | hit@{arguments.top} | recall@{arguments.top} | ms a question |\n| --- | --- | --- | --- |"
        )
        for name, rank in ranks.items():
            started = time.monotonic()
            values = measure(rank, questions, arguments.relevant, arguments.top)
            spent = (time.monotonic() - started) / len(questions) * 1000
            print(f"| {name} | {mean(values)} | {spent:.1f} |", flush=True)
            for question, value in zip(questions, values, strict=True):
                if arguments.by:
                    by.setdefault(str(question[arguments.by]), {}).setdefault(name, []).append(value)
        for part, columns in sorted(by.items()):
            print(f"{part}: " + ", ".join(f"{name} {mean(values)}" for name, values in columns.items()))
        store.close()


if __name__ == "__main__":
    main()
