"""`cragline batch diff` and `cragline what-if`: two batches side by side, and one under other settings."""

import csv
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from api.cli.output import cell, console, csv_cell, in_bigint, print_json, table
from shared import compare
from shared.clean import counted
from shared.db import get_engine
from shared.errors import UsageError
from shared.plan import parse_sets

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with counts and rows.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")]
Limit = Annotated[int, typer.Option(min=0, help="Rows shown; --json and --csv have them all.")]


def diff(
    batch_a: Annotated[int, typer.Argument(metavar="A", help="A batch.", callback=in_bigint("batch"))],
    batch_b: Annotated[int, typer.Argument(metavar="B", help="Another one.", callback=in_bigint("batch"))],
    json: Json = False,
    as_csv: Csv = False,
    limit: Limit = 20,
    everything: Annotated[
        bool, typer.Option("--all", help="Rows of questions for which nothing differs, too.")
    ] = False,
) -> None:
    """Compare two batches question by question: disposition, answer, sources, grades and cost.

    A question for which only the cost differs is counted, and its row is shown with --all.
    """
    _one_format(json, as_csv)
    seen, writer = compare.Difference(), csv.writer(sys.stdout)
    kept: list[dict[str, Any]] = []
    for number, row in enumerate(compare.batch_diff(get_engine(), batch_a, batch_b)):
        if as_csv and number == 0:
            writer.writerow(row)
        seen.see(row)
        if not everything and not set(row["changed"]) - {"cost"}:
            continue
        if as_csv:
            writer.writerow([csv_cell(value) for value in row.values()])
        elif json or len(kept) < limit:
            kept.append(row)
    if json:
        print_json({"a": batch_a, "b": batch_b, "counts": seen.counts(), "rows": kept})
    elif not as_csv:
        _show_difference(console(), batch_a, batch_b, seen.counts(), kept)


def _show_difference(
    out: Console, a: int, b: int, counts: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    moves = counts.pop("moves")
    facts = [(name.replace("_", " "), value) for name, value in counts.items()]
    facts += [(f"disposition {move}", count) for move, count in moves.items()]
    out.print(table(("", f"batch {a} (A) and batch {b} (B)"), facts, width=None))
    for row in rows:
        out.print(table(("", "question"), _lines(row), width=None))


def _lines(row: dict[str, Any]) -> list[tuple[str, Any]]:
    sides = [(side, row[f"run_{side}"]) for side in ("a", "b")]
    lines = [("", row["question"]), ("differs", ", ".join(row["changed"]).replace("_", " "))]
    for side, run in sides:
        if run is not None:
            said = f"{row[f'disposition_{side}']} (run {run}): {cell(row[f'answer_{side}'], 200).plain}"
            sources = ", ".join(row[f"sources_{side}"] or [])
            lines.append((side.upper(), said + (f" [{sources}]" if sources else "")))
    return lines


def what_if(
    batch: Annotated[int, typer.Argument(metavar="BATCH", help="A batch.", callback=in_bigint("batch"))],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter of the decision, such as `upper=0.6` or `rule=ratio:0.5`."),
    ] = None,
    json: Json = False,
    as_csv: Csv = False,
    limit: Limit = 20,
) -> None:
    """What the stored grades of a batch would have led to under other settings. No model is asked.

    crag: rule, ratio, upper, lower, relevant_at, refine, rewrite, web_search. self_rag and adaptive:
    relevant_at, in the first round of grading.
    """
    _one_format(json, as_csv)
    if not sets:
        raise UsageError("Say what would be different, such as --set rule=ratio:0.5.")
    engine = get_engine()
    rows = compare.what_if(engine, batch, dict(parse_sets(sets)))
    told = compare.summary(rows)
    if as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(rows[0] if rows else [])
        writer.writerows([csv_cell(value) for value in row.values()] for row in rows)
    elif json:
        costs = compare.node_costs(engine, batch)
        print_json({"batch_id": batch, "settings": sets, "summary": told, "node_costs": costs, "rows": rows})
    else:
        _show_what_if(console(), told, [row for row in rows if row["other_way"]][:limit])


def _show_what_if(out: Console, told: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    words = f"{told['other_way']:,} of {counted(told['runs'], 'run')} would have taken another way"
    if told["other_knowledge_only"]:
        words += f"; {told['other_knowledge_only']:,} more the same way with other documents"
    _say(out, f"{words}.")
    if told["ways"]:
        lines = [(way["runs"], way["before"], way["now"]) for way in told["ways"]]
        out.print(table(("runs", "after the grades", "would have been"), lines, width=None))
    if rows:
        columns = (
            "run_id",
            "relevant_before",
            "relevant_now",
            "action_before",
            "action_now",
            "question",
            "rests_on",
        )
        out.print(table(columns, [[row[column] for column in columns] for row in rows]))
    if told["cost_change_usd"] is not None:
        missing = told["runs_without_estimate"]
        partly = (
            f", without {counted(missing, 'run')} that this batch gives no measure for" if missing else ""
        )
        _say(out, f"Estimated change of the cost: {told['cost_change_usd']:+.6f} USD{partly}.")
    elif told["other_way"]:
        _say(out, "The change of the cost cannot be estimated from this batch.")
    for words, count in told["not_known"].items():
        _say(out, f"Not known, for {counted(count, 'run')}: {words}.")


def _say(out: Console, words: str) -> None:
    out.print(words, markup=False, highlight=False, soft_wrap=True)


def _one_format(json: bool, as_csv: bool) -> None:
    if json and as_csv:
        raise UsageError("--csv or --json, not both.")
