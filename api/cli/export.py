"""`cragline export`: a batch as files for other programs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from api.cli.output import in_bigint, print_json
from shared.clean import counted
from shared.db import get_engine
from shared.errors import UsageError
from shared.export import export_batch


def export(
    batch: Annotated[
        int, typer.Argument(metavar="BATCH", help="The batch's number.", callback=in_bigint("batch"))
    ],
    parquet: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write Parquet files into this folder.")
    ] = None,
    jsonl: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write JSON lines into this folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Write everything there is of a batch into files, one for each view of the schema `history`."""
    if parquet is not None and jsonl is None:
        folder, counts = parquet, export_batch(get_engine(), batch, parquet, "parquet")
    elif jsonl is not None and parquet is None:
        folder, counts = jsonl, export_batch(get_engine(), batch, jsonl, "jsonl")
    else:
        raise UsageError("Say where to: --parquet DIR or --jsonl DIR.")
    if json:
        print_json({"batch_id": batch, "folder": str(folder), "rows": counts})
        return
    words = f"{counted(sum(counts.values()), 'row')} of batch {batch} written to {folder}."
    Console().print(words, markup=False, highlight=False, soft_wrap=True)
