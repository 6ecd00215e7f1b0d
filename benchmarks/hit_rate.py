"""How often the answers rest on the right passage, and how often a question without one is given up.

    .venv/bin/python benchmarks/hit_rate.py CORPUS.jsonl QUESTIONS.jsonl [--collection NAME]
                                            [--set relevant_at=0.45,0.5 --set answer_at=0.5,0.55]

Needs a running stack with local models and no Tavily key. The corpus has `id`, `title` and `text`, the
questions `question`, `answerable_from_corpus` and `relevant_ids`. Every combination of the `--set` values
is submitted as a batch through `crag`; the table has a line for each.
"""

import argparse
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CRAGLINE = Path(sys.executable).with_name("cragline")


def cragline(*words: str) -> str:
    return subprocess.run([CRAGLINE, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def grid(sets: list[str]) -> list[dict[str, str]]:
    """`["a=1,2", "b=3"]` as every combination of one value each."""
    axes = []
    for item in sets:
        key, _, values = item.partition("=")
        axes.append([(key, value) for value in values.split(",")])
    return [dict(combination) for combination in itertools.product(*axes)]


def measure(batch_id: int) -> dict[str, Any]:
    lines = [json.loads(line) for line in cragline("results", str(batch_id), "--json").splitlines()]
    answerable = [line for line in lines if line["answerable_from_corpus"]]
    others = [line for line in lines if not line["answerable_from_corpus"]]
    hits = [line for line in answerable if set(line["relevant_ids"]) & cited(line)]
    ends = {line["disposition"] for line in lines}
    assert ends <= {"answered", "gave_up"}, ends
    return {
        "rows": len(lines),
        "answerable": len(answerable),
        "answered": share(answerable, "answered"),
        "hit": len(hits) / max(len(answerable), 1),
        "others_gave_up": share(others, "gave_up"),
    }


def cited(line: dict[str, Any]) -> set[str]:
    return {source["source"].rsplit("#", 1)[-1] for source in line["sources"] or []}


def share(lines: list[dict[str, Any]], disposition: str) -> float:
    return sum(line["disposition"] == disposition for line in lines) / max(len(lines), 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--collection", default="hit-rate")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    cragline("ingest", str(arguments.corpus), "--collection", arguments.collection)
    print("| settings | answered | relevant passage cited | not answerable: gave up | seconds |")
    print("| --- | --- | --- | --- | --- |")
    for values in grid(arguments.set):
        sets = [f"--set={key}={value}" for key, value in values.items()]
        started = time.monotonic()
        words = [
            "submit",
            str(arguments.questions),
            "--column=question",
            f"--collection={arguments.collection}",
        ]
        done = json.loads(cragline(*words, *sets, "--watch", "--json"))
        found = measure(done["batch_id"])
        name = ", ".join(f"{key} {value}" for key, value in values.items()) or "defaults"
        print(
            f"| {name} | {found['answered']:.3f} | {found['hit']:.3f} | {found['others_gave_up']:.3f} "
            f"| {time.monotonic() - started:.0f} |",
            flush=True,
        )
        checks = cragline("sql", "--csv", f"SELECT * FROM lost_runs WHERE batch_id = {done['batch_id']}")
        assert len(checks.splitlines()) == 1, checks


if __name__ == "__main__":
    main()
