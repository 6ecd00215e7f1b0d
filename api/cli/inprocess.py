"""`cragline ask` and `cragline graph`: the graphs themselves, without queue or database.

The front door imports no worker code, so both run `workers.inprocess` as a process and read its lines.
"""

import json as jsonlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from sqlalchemy.exc import DBAPIError

from api.cli.output import cell, print_json, printable
from api.cli.output import console as output_console
from shared.clean import counted
from shared.db import get_engine
from shared.errors import CraglineError, UsageError
from shared.knowledge import resolved
from shared.plan import Plan, make_plan, params_type, with_filters
from shared.settings import get_settings
from shared.stack.state import make_home


def graph(pipeline: Annotated[str, typer.Argument(help="crag, rag, self_rag or adaptive.")]) -> None:
    """Draw a pipeline as Mermaid text, from the compiled graph."""
    params_type(pipeline)
    done = subprocess.run(
        [*_WORKER, "graph", pipeline], stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False
    )
    if done.returncode:
        if lines := done.stdout.splitlines():
            raise _told(jsonlib.loads(lines[-1]))
        raise CraglineError("The graph could not be drawn; the lines above say why.")
    print(done.stdout, end="")


def _told(event: dict[str, Any]) -> CraglineError:
    """The error that the process told."""
    error = CraglineError(event["error"])
    error.exit_code = event["exit_code"]
    return error


def ask(
    question: Annotated[str, typer.Argument(help="One question.")],
    pipeline: Annotated[str, typer.Option(help="crag, rag, self_rag or adaptive.")] = "crag",
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", help="Collection to answer from.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value of the pipeline.")] = None,
    filter_: Annotated[
        list[str] | None, typer.Option("--filter", help="key=value that documents must match.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the final state as one JSON object.")] = False,
) -> None:
    """Answer one question in this process, node by node. Nothing of it is kept in the history."""
    if not question.strip():
        raise UsageError("The question is empty.")
    settings = get_settings()
    if settings.qdrant_url is None:
        make_home(settings.home)  # the local store is in it
    # wrong words are said before work
    plan = make_plan(settings, pipeline, with_filters(set_, filter_), collection)
    words = ["ask", f"--pipeline={pipeline}", *(f"--set={item}" for item in set_ or [])]
    words += [f"--filter={item}" for item in filter_ or []]
    plan = _resolved(plan)
    words.append(f"--collection={plan.collection}")
    if description := plan.params.get("description"):
        words.append(f"--set=description={description}")
    console = output_console()
    for event in _events([*words, "--", question]):
        if "error" in event:
            raise _told(event)
        if "final" in event:
            if json:
                print_json(event["final"] | {"usage": event["usage"]})
            else:
                _print_answer(console, event["final"])
        elif not json:
            console.print(Text(f"{event['node']}: ", style="bold") + cell(_gist(event["update"]), 100))


def _resolved(plan: Plan) -> Plan:
    """With the target of an alias, and with the collection's description, as a batch would have them; as it
    is where no database can be asked, as none is needed here."""
    try:
        return resolved(get_engine(), plan)
    except (CraglineError, DBAPIError):
        return plan


_WORKER = [sys.executable, "-m", "workers.inprocess"]


def _events(words: list[str]) -> Iterator[dict[str, Any]]:
    with subprocess.Popen([*_WORKER, *words], stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stdout is not None
        said_end = False
        for line in process.stdout:
            event = jsonlib.loads(line)
            said_end = said_end or "final" in event or "error" in event
            yield event
    if not said_end:
        raise CraglineError("The question could not be answered; the lines above say why.")


def _gist(update: dict[str, Any]) -> str:
    parts = []
    for key, value in update.items():
        if key == "grades":
            parts += [_graded(grade) for grade in value]
        elif key == "decision":
            parts.append(f"{value['action']} ({value['why']})")
        elif key == "notes":
            parts += map(str, value)
        elif key == "knowledge":
            parts.append(f"{counted(len(value), 'document')} kept")
        elif key == "checks":
            parts += [_checked(check) for check in value]
        elif key in ("tried", "feedback", "query_feedback"):
            parts += [f"{key}: {text}" for text in value]
        elif isinstance(value, list):
            parts.append(counted(len(value), key.removesuffix("s")))
        elif value == "":
            continue  # no problem, no draft
        else:
            parts.append(f"{key} = {value}")
    return "; ".join(parts)


def _checked(check: dict[str, Any]) -> str:
    score = "" if check["score"] is None else f" {check['score']:.2f}"
    detail = f" ({check['detail']})" if check["detail"] else ""
    return f"{'' if check['passed'] else 'not '}{check['what']}{score}{detail}"


def _graded(grade: dict[str, Any]) -> str:
    score = "" if grade["score"] is None else f" {grade['score']:.2f}"
    return f"{grade['label']}{score}: {grade['source']}"


def _print_answer(console: Console, state: dict[str, Any]) -> None:
    console.print()
    if state.get("disposition") != "answered":
        console.print(cell(f"No answer: {state.get('reason', 'no reason was given')}", None))
        return
    console.print(Text(printable(state["answer"])))
    for number, source in enumerate(state["sources"], 1):
        page = f" (page {source['page']})" if source["page"] else ""
        console.print(
            cell(f"{number}. {source['title'] or source['source']}{page}  {source['source']}", None)
        )
