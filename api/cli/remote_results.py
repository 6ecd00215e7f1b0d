"""`cragline results --server`: the results of a server, written here as those of the database are."""

import sys
from pathlib import Path

from rich.console import Console

from api.cli.remote import Server
from api.files import atomic_binary
from shared.errors import UsageError

_FORMATS = {".csv": "csv", ".xlsx": "xlsx", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def fetch_results(
    server: Server, batch_id: int, output: Path | None, *, json: bool, raw: bool = False
) -> None:
    """To a file, whole or not at all, or to the screen. Raises UsageError for another ending."""
    if output is None:
        with server.results(batch_id, format="jsonl" if json else "csv", raw=raw) as blocks:
            for block in blocks:
                sys.stdout.buffer.write(block)
        sys.stdout.flush()
        return
    form = _FORMATS.get(output.suffix.lower())
    if form is None:
        raise UsageError(
            f"{output}: results are written as {', '.join(_FORMATS)}. Give it one of these endings."
        )
    with (
        server.results(batch_id, format=form, raw=raw, bom=form == "csv") as blocks,
        atomic_binary(output) as out,
    ):
        for block in blocks:
            out.write(block)
    Console(stderr=True).print(f"Written to {output}.", markup=False, highlight=False, soft_wrap=True)
