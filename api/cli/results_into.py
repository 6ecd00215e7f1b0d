"""`cragline results BATCH --into original.xlsx -o filled.xlsx`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from api.files import atomic_binary
from api.results import ResultRow
from shared.clean import counted
from shared.errors import CraglineError, NotFound, UsageError


def write(
    into: Path, output: Path | None, source: Mapping[str, Any], rows: Iterable[ResultRow], *, force: bool
) -> None:
    """Writes the copy of the workbook `into` to `output`, whole or not at all. Raises UsageError and
    CraglineError when that cannot be, or should not."""
    from api.results_fill import fill

    if not into.is_file():
        raise NotFound(f"{into}: there is no such file.")
    if output is None:
        raise UsageError("--into needs --output, the workbook to write: the original is never changed.")
    if output.suffix.lower() != into.suffix.lower():
        raise UsageError(f"{output}: a copy of {into.name} has to end in {into.suffix}, too.")
    if output.exists():
        if output.samefile(into):
            raise UsageError(f"{output}: this is the original, which is never changed. Name another file.")
        if not force:
            raise CraglineError(f"{output}: there is such a file. Name another one, or say --force.")
    with atomic_binary(output) as out:
        filled = fill(out, into, source, rows)
    said = f"{counted(filled.rows, 'row')} written to {output}, columns {filled.first} to {filled.last}."
    for line in (said, *filled.notes):
        Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)
