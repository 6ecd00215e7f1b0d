"""Files as people handed them over: every row comes out, in order, with its cells as they were."""

import csv
import io
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from tests.e2e.home import Home

KEPT = 40  # rows of each file; the whole files would take minutes
COLUMNS = {"asvs_de": "req_description"}  # where no name says which column holds the questions


def wild_files() -> Iterator[Path]:
    folder = Path(os.environ.get("CRAGLINE_TEST_DATA", "/nonexistent")) / "wild_batches"
    for path in sorted(folder.glob("**/*")):
        if path.suffix in (".csv", ".jsonl", ".txt"):
            yield path


def encoding_of(path: Path) -> str:
    """Said by the names of the files and their description, not by the code that is tested."""
    return "cp1252" if "cp1252" in path.name else "utf-16" if "unicode_text" in path.name else "utf-8-sig"


def dialect_of(path: Path) -> str:
    return ";" if "semicolon" in path.name else "\t" if path.suffix == ".txt" else ","


def cut(path: Path) -> tuple[bytes, list[list[str]]]:
    """The first records of a file, its bytes as they are, and what stands in them."""
    text = path.read_bytes().decode(encoding_of(path))
    lines = text.splitlines(keepends=True) if path.suffix == ".jsonl" else text.split("\n")
    if path.suffix == ".jsonl":
        kept = lines[:KEPT]
        return "".join(kept).encode(), [[line] for line in kept if line.strip()]
    reader = csv.reader((line + "\n" for line in lines), delimiter=dialect_of(path))
    records = list(islice(reader, KEPT + 1))
    content = "\n".join(lines[: reader.line_num])
    return content.encode(encoding_of(path)), records


@pytest.mark.data
def test_wild_files_go_in_and_come_out(knowledge: Home) -> None:
    files = list(wild_files())
    if not files:
        pytest.skip("CRAGLINE_TEST_DATA does not name the folder of the evaluation data")

    def through(path: Path) -> None:
        content, records = cut(path)
        file = knowledge.write(f"wild/{path.name}", content)
        column = next((name for start, name in COLUMNS.items() if path.name.startswith(start)), None)
        words = ["--column", column] if column else []
        told = knowledge.submit(file, "--pipeline", "rag", *words)
        assert told["answered"] + told["gave_up"] == told["submitted"]
        if path.suffix == ".jsonl":
            came = knowledge.results(told["batch_id"])
            assert [
                {key: row[key] for key in json.loads(line)} for row, [line] in zip(came, records, strict=True)
            ] == [json.loads(line) for [line] in records], path.name
            return
        out = knowledge.run("results", told["batch_id"], "--raw").out
        header, *rows = csv.reader(io.StringIO(out, newline=""))
        names, *cells = records
        while cells and not any(cells[-1]):  # a last line of nothing
            cells.pop()
        assert header[: len(names)] == names
        assert [row[: len(names)] for row in rows][: len(cells)] == [
            (record + [""] * len(names))[: len(names)] for record in cells
        ], path.name
        assert not any(any(row[: len(names)]) for row in rows[len(cells) :])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(through, files))
