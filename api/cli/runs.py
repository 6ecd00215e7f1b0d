"""`cragline run show`: the whole story of one answer."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from api.cli import control, remote
from api.cli.output import cell, console, in_bigint, print_json, table
from api.cli.remote import ServerOption
from shared import history
from shared.clean import counted
from shared.db import get_engine

app = typer.Typer(help="Single runs.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Single runs."""


@app.command()
def show(
    run: Annotated[
        int,
        typer.Argument(
            metavar="RUN",
            help="The run's number, as results and Flower name it.",
            callback=in_bigint("run"),
        ),
    ],
    server: ServerOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """The timeline of a run: every node, branch and attempt, how long, from where to where, and the grades."""
    if there := remote.at(server):
        details = there.get(f"/v1/runs/{run}")
        steps, still_open = details.pop("timeline"), details.pop("open")
    else:
        engine = get_engine()
        details = history.run_details(engine, run)
        steps = history.timeline(engine, run)
        still_open = history.open_claims(engine, run)
    if json:
        print_json(details | {"timeline": steps, "open": still_open})
        return
    out = console()
    _print_head(out, details)
    if out.width >= _WIDE:
        out.print(table(_COLUMNS, [_line(step) for step in steps], width=None))
    else:
        for step in steps:
            _print_step(out, step)
    for claim in still_open:
        out.print(
            f"open: step {claim['step']} branch {claim['branch']} {claim['node']} is {claim['status']}",
            markup=False,
            highlight=False,
        )


app.command()(control.fork)

_COLUMNS = ("step", "branch", "try", "node", "status", "ms", "from", "to", "what")
_WIDE = 120  # columns; a narrower terminal would cut the table's words to pieces


def _print_step(out: Console, step: dict[str, Any]) -> None:
    """The same as a line of the table, on two lines of 80 columns."""
    number, branch, attempt, node, status, ms, came_from, goes_to, what = _line(step)
    tried = f" (try {attempt})" if attempt != 1 else ""
    place = f"{number}.{branch}"
    line = Text.assemble(f"{place:<6}", (node, "bold"), f"{tried} {status} in {ms} ms: ")
    out.print(line + cell(came_from, None) + Text(" -> ") + cell(goes_to, None))
    if what:
        out.print(Padding(cell(what, None), (0, 0, 0, 6)))


def _print_head(out: Console, details: dict[str, Any]) -> None:
    shown = {
        "question": details["question"],
        "batch": f"{details['batch_id']} ({details['batch']}), pipeline {details['pipeline']}",
        "rows": details["rows"],
        "taken over from": details["reused_from"] and f"run {details['reused_from']}",
        "status": details["status"],
        "answer": details["answer"],
        "reason": details["reason"],
        "error": details["error"],
        "sources": [_source(source) for source in details["sources"] or []],
        "notes": details["notes"],
        "forked from": details["forked_from"]
        and f"run {details['forked_from']}, at its step {details['first_step']}",
        "round": details["round"] if details["round"] > 1 else None,
    }
    rows = [(key, value) for key, value in shown.items() if value not in (None, [], "")]
    out.print(table(("", f"run {details['run_id']}"), rows, width=None))


def _source(source: dict[str, Any]) -> str:
    page = f" (page {source['page']})" if source.get("page") else ""
    return f"{source['title']}{page}: {source['source']}" if source["title"] else f"{source['source']}{page}"


def _line(step: dict[str, Any]) -> list[Any]:
    return [
        step["step"],
        step["branch"],
        step["attempt"],
        step["node"],
        step["status"],
        f"{step['duration_ms']:.0f}",
        step["came_from"],
        step["goes_to"],
        what_happened(step),
    ]


def what_happened(step: dict[str, Any]) -> str:
    """The one thing of a step that a reader wants to see."""
    if step["error"]:
        return str(step["error"])
    if step["grade"]:
        score = "" if step["grade_score"] is None else f" {step['grade_score']:.2f}"
        return f"{step['grade']}{score}: {cell(step['graded_source'], 50).plain}"
    update = step["state_update"] or {}
    if "reused_from" in update:
        return f"taken over from run {update['reused_from']['run']}"
    if "decision" in update:
        return f"{update['decision']['action']}: {update['decision']['why']}"
    if "web_documents" in update:
        return f"{update['web_status']}: {counted(len(update['web_documents']), 'web result')}"
    if "documents" in update:
        return counted(len(update["documents"]), "document")
    if "query" in update:
        return f"query: {cell(update['query'], 50).plain}"
    if "strips" in update:
        kept = sum(strip["kept"] for strip in update["strips"])
        return f"{kept} of {len(update['strips'])} strips kept"
    return _what_of_judging(update)


def _what_of_judging(update: dict[str, Any]) -> str:
    """The same of the nodes that only the judging pipelines have."""
    if "checks" in update:
        check = update["checks"][0]
        score = "" if check["score"] is None else f" {check['score']:.2f}"
        detail = f": {check['detail']}" if check["detail"] else ""
        return cell(f"{'' if check['passed'] else 'not '}{check['what']}{score}{detail}", 80).plain
    if "extracts" in update:
        return f"{counted(len(update['extracts'][0]['passages']), 'passage')} taken"
    if "tried" in update:
        return cell(update["tried"][-1], 80).plain
    if "draft" in update:
        return f"draft: {cell(update['draft'], 50).plain}"
    if "knowledge" in update:
        return f"{counted(len(update['knowledge']), 'document')} kept"
    for key in ("query_feedback", "feedback"):
        if key in update:
            return f"feedback: {cell(update[key][-1], 50).plain}"
    if "mode" in update:
        return f"to: {update['mode']}"
    if "retrieval_needed" in update:
        return "documents are needed" if update["retrieval_needed"] else "no documents are needed"
    return str(update.get("disposition", ""))
