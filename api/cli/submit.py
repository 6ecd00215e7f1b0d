"""`cragline submit`: a file of questions becomes a batch."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from sqlalchemy.exc import DBAPIError

from api.cli import preflight, preview, remote, watch
from api.cli.acting import By, actor, wake
from api.cli.control import MaxInFlight, Priority, Weight
from api.cli.output import print_json
from api.cli.patience import is_away
from api.cli.remote import Server, ServerOption
from api.preflight import Preflight, costs_money, look
from shared import batches, deliveries, history, knowledge
from shared.budget import Caps, check_caps
from shared.clean import counted, one_line
from shared.control import Share
from shared.db import get_engine
from shared.errors import CraglineError, UsageError
from shared.filters import as_text
from shared.logs import redact
from shared.plan import Plan, make_plan, with_filters
from shared.settings import Reuse, get_settings

_LONGEST_NAME = 500  # characters, as the table has it

if TYPE_CHECKING:
    from api.intake import InputRow, QuestionFile


def submit(
    file: Annotated[Path, typer.Argument(help="Questions: .csv, .tsv, .xlsx, .jsonl, .json, .txt or .zip.")],
    pipeline: Annotated[
        str, typer.Option(help="How they are answered: crag, rag, self_rag or adaptive.")
    ] = "crag",
    column: Annotated[
        str | None,
        typer.Option(help="The column that holds the questions (name or number). Left out: guessed."),
    ] = None,
    sheet: Annotated[
        str | None, typer.Option(help="The sheet of a workbook (name or number). Left out: found.")
    ] = None,
    header_row: Annotated[
        int | None,
        typer.Option(
            min=0, max=1_048_576, help="The row of the sheet with the header; 0: none. Left out: found."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for the batch. Left out: the file's.")] = None,
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", help="Collection to answer from.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value of the pipeline, e.g. k=6 or rule=ratio:0.5.")
    ] = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option("--filter", help="key=value that documents must match, e.g. page=3 or fields.lang=nl."),
    ] = None,
    reuse: Annotated[
        Reuse | None,
        typer.Option(
            help="Whose identical paid work is taken over: off, batch or all. Left out: CRAGLINE_REUSE."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is found in the file, and submit nothing.")
    ] = False,
    max_cost: Annotated[
        float | None,
        typer.Option(help="Pause before the batch has cost more than this many USD."),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Pause before it has taken more than this many tokens.")
    ] = None,
    priority: Priority = None,
    weight: Weight = None,
    max_in_flight: MaxInFlight = None,
    by: By = None,
    check: Annotated[
        bool, typer.Option("--check", help="Look at everything, say what it will cost, and submit nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Submit without asking, whatever it may cost.")
    ] = False,
    callback_url: Annotated[
        str | None,
        typer.Option(help="Told, signed, when the batch has ended. Needs CRAGLINE_WEBHOOK_SECRET."),
    ] = None,
    server: ServerOption = None,
    watch_: Annotated[bool, typer.Option("--watch", help="Stay until the batch has ended.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Submit a file of questions. It is taken whole or not at all."""
    from api.intake import open_questions

    if name is not None and len(name) > _LONGEST_NAME:
        raise UsageError(f"--name: at most {_LONGEST_NAME} characters, not {len(name)}.")
    if dry_run:
        preview.show(open_questions(file, column, sheet=sheet, header_row=header_row), Console(), json=json)
        return
    if there := remote.at(server):
        if check:
            raise UsageError("--check looks at the models and the store from here; it cannot with --server.")
        options: dict[str, Any] = {
            "pipeline": pipeline,
            "column": column,
            "sheet": sheet,
            "header_row": header_row,
            "name": name,
            "collection": collection,
        }
        options |= {
            "callback_url": callback_url,
            "set": set_,
            "filter": filter_,
            "max_cost_usd": max_cost,
            "max_tokens": max_tokens,
        }
        options |= {"priority": priority, "weight": weight, "max_in_flight": max_in_flight, "reuse": reuse}
        _submit_there(there, file, options, watch_=watch_, json=json)
        return
    caps = Caps(max_cost, max_tokens)
    terms = batches.Terms(Share(priority, weight, max_in_flight), submitted_by=actor(by), caps=caps)
    settings, console = get_settings(), Console(stderr=json)
    callback = deliveries.checked_callback(settings, callback_url)
    request = batches.Request(None, callback) if callback else None
    plan = make_plan(settings, pipeline, with_filters(set_, filter_), collection, reuse)
    questions = open_questions(file, column, sheet=sheet, header_row=header_row)
    engine = get_engine()
    plan = knowledge.resolved(engine, plan)
    batches.check_collection(engine, plan)
    check_caps(plan, caps)
    if not json:
        _say_preflight(console, questions, plan)
    found = _look(console, questions, plan, thorough=check, json=json)
    if check:
        raise typer.Exit(1 if found.bad else 0)
    preflight.refuse_bad(found)
    preflight.confirm(found, plan, settings, console, yes=yes, ask=not json)
    submitted = batches.submit(
        engine,
        plan,
        name or file.name,
        asdict(questions.report),
        _counted(questions, console, quiet=json),
        terms,
        request,
    )
    with _named(submitted.batch_id), watch.interruptible(submitted.batch_id, Console(stderr=True)):
        if not wake(settings):
            console.print("The queue does not answer; the batch starts when it is back.", style="yellow")
        if not json:
            _say_submitted(console, submitted)
        row = None
        if watch_:
            row = watch.until_ended(engine, submitted.batch_id, console, quiet=json)
        if json:
            row = row or history.progress(engine, submitted.batch_id)
            about = {
                "question_column": questions.report.question_column,
                "preflight": preflight.as_json(found),
            }
            print_json(watch.as_json(row) | about)
            sys.stdout.flush()  # a disk that is full says so here, where the batch can be named
        elif not watch_:
            console.print(f"Watch it with `cragline batch watch {submitted.batch_id}`.", highlight=False)


def _submit_there(server: Server, file: Path, options: dict[str, Any], *, watch_: bool, json: bool) -> None:
    """Hand the file to a server, which reads it and says how it understood it."""
    console = Console(stderr=json)
    made = server.submit(file, options)
    batch_id = made["batch_id"]
    with _named(batch_id), watch.interruptible(batch_id, Console(stderr=True)):
        if not json:
            for note in made["notes"]:
                console.print(note, markup=False, highlight=False, soft_wrap=True)
            counts = (made["rows"], made["questions"], made["empty_rows"], made["duplicate_rows"])
            _say_submitted(console, batches.Submitted(batch_id, *counts))
        row = watch.until_ended(server, batch_id, console, quiet=json) if watch_ else None
        if json:
            row = row or server.progress(batch_id)
            print_json(row | {"question_column": made["question_column"]})
            sys.stdout.flush()
        elif not watch_:
            command = f"cragline batch watch {batch_id} --server {server.url}"
            console.print(f"Watch it with `{command}`.", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _named(batch_id: int) -> Iterator[None]:
    """The rows are stored: whoever is told of a failure after that must be told of the batch too, or the
    file is submitted twice."""
    try:
        yield
    except (CraglineError, typer.Exit):  # these name it themselves
        raise
    except BrokenPipeError:
        print(watch.goes_on(batch_id), file=sys.stderr)
        raise
    except DBAPIError as error:
        what = "The database does not answer" if is_away(error) else f"The database refused: {error.orig}"
        raise CraglineError(f"{watch.goes_on(batch_id)} {redact(one_line(what))}.") from None
    except OSError as error:
        raise CraglineError(f"{watch.goes_on(batch_id)} {error.strerror or type(error).__name__}.") from error
    except Exception as error:
        raise CraglineError(f"{watch.goes_on(batch_id)} This failed ({type(error).__name__}).") from error


def _look(
    console: Console, questions: "QuestionFile", plan: Plan, *, thorough: bool, json: bool
) -> Preflight:
    """The preflight, said; with --check, --json prints it. The file is read an extra time only for a number."""
    rows = _counted(questions, console, quiet=json) if thorough or costs_money(plan) else None
    found = look(get_engine(), get_settings(), plan, rows, thorough=thorough)
    if json:
        if thorough:
            print_json(preflight.as_json(found))
        return found
    for line in preflight.lines(found, thorough=thorough):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return found


def _say_preflight(console: Console, questions: "QuestionFile", plan: Plan) -> None:
    report = questions.report
    lines = [preview.describe(questions)]
    lines += report.notes
    names = sorted(set(plan.models.values()) - {plan.provider})
    models = f"{plan.provider} ({', '.join(names)})" if names else plan.provider
    lines.append(f"Pipeline {plan.pipeline}, collection {plan.collection!r}, models: {models}.")
    if plan.params.get("filter"):
        lines.append(f"Only documents that match {as_text(plan.params['filter'])}.")
    if plan.params.get("web_search") == "off":
        lines.append("Web search is off.")
    elif plan.params.get("web_search") == "on" and not get_settings().web_search_on:
        lines.append(
            "Web search is asked for, but there is no TAVILY_API_KEY here: unless the workers have one, "
            "every search will fail, and the history will say so."
        )
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _counted(questions: "QuestionFile", console: Console, quiet: bool) -> "Iterator[InputRow]":
    """The rows, with a counter on a terminal."""
    if quiet or not console.is_terminal:
        yield from questions.rows()
        return
    columns = (SpinnerColumn(), TextColumn("{task.completed:,} rows read"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("rows", total=None)
        for row in questions.rows():
            progress.advance(task)
            yield row


def _say_submitted(console: Console, submitted: batches.Submitted) -> None:
    odd: list[Any] = []
    if submitted.empty_rows:
        odd.append(f"{submitted.empty_rows} empty (not run, kept in the results)")
    if submitted.duplicate_rows:
        odd.append(f"{submitted.duplicate_rows} repeated (run once, answered for each)")
    extra = f", {', '.join(odd)}" if odd else ""
    console.print(
        f"Batch {submitted.batch_id}: {counted(submitted.rows, 'row')}, "
        f"{counted(submitted.runs, 'question')}{extra}.",
        highlight=False,
        soft_wrap=True,
    )
