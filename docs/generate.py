"""Writes what the handbook takes from the code: settings.md, cli.md, schema.md, openapi.json, parts of others;
and for the page at `/` the compiled graphs, which the API's side cannot import.

python docs/generate.py           write the pages
python docs/generate.py --check   write nothing; exit code 1 names the pages that are stale
"""

import inspect
import json
import re
import sys
import types
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer
from pydantic import AliasChoices, SecretStr
from pydantic.fields import FieldInfo
from sqlalchemy.dialects import postgresql

from api.app import create_app
from api.cli.main import app
from shared.plan import PIPELINES, THRESHOLDS
from shared.settings import Settings
from shared.statuses import BatchStatus, ClaimStatus, RunStatus, TransitionStatus
from shared.tables import Base
from workers.runner.graph_adapter import GraphAdapter
from workers.runner.pipelines import adapters

DOCS = Path(__file__).resolve().parent
PAGE_GRAPHS = "../api/web/pipelines.json"
NOTICE = "<!-- Written by docs/generate.py. Change the code, then run `make docs`. -->"
_GROUP = re.compile(r"^    # -- (.+?) -+$")
_FIELD = re.compile(r"^    (\w+): ")
_MARKED = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    pages = {"settings.md": settings_page(), "cli.md": cli_page(), "schema.md": schema_page()}
    pages |= {name: marked_page(name) for name in ("pipelines.md", "history.md")}
    pages["openapi.json"] = openapi_document()
    pages[PAGE_GRAPHS] = page_graphs()
    stale = [name for name, text in pages.items() if _read(name) != text]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"docs/{name} is stale: run `make docs`")
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(pages[name], encoding="utf-8")
        print(f"wrote docs/{name}")
    return 0


def _read(name: str) -> str | None:
    path = DOCS / name
    return path.read_text(encoding="utf-8") if path.exists() else None


# -- settings.md -----------------------------------------------------------------------------------------
_SETTINGS_HEAD = """\
# Settings

{notice}

Every setting is an environment variable, or a line `NAME=value` in a file `.env` in the working directory.
The environment wins over `.env`, and an empty value counts as unset.
All settings are read once, by the class `Settings` in `shared/settings.py`; nothing else reads the environment.
Each line below gives the variable, its name in the class, its type and its default.
"""
_PARAMS_HEAD = """
# Parameters of the pipelines

These are set for one batch, with `cragline submit FILE --set key=value`, and are frozen in its plan.
An unknown key or a value out of range is refused before anything is stored.
A threshold that is left unset takes the default of whoever plays the models, because a cosine of the local
models and the score of a reasoning model are on different scales.
"""


def settings_page() -> str:
    lines = [_SETTINGS_HEAD.format(notice=NOTICE).rstrip("\n")]
    group = ""
    for title, name in _settings_in_order():
        if title != group:
            group = title
            lines += ["", f"## {title[0].upper()}{title[1:]}", ""]
        field = Settings.model_fields[name]
        lines.append(f"- `{variable(name, field)}` ({name}; {_facts(field)}): {field.description}")
    lines.append(_PARAMS_HEAD.rstrip("\n"))
    for pipeline, kind in sorted(PIPELINES.items()):
        lines += ["", f"## Parameters of {pipeline}", ""]
        lines += [
            f"- `{name}` ({_facts(field)}{_thresholds(name)}): {field.description}"
            for name, field in kind.model_fields.items()
        ]
    return "\n".join(lines) + "\n"


def _settings_in_order() -> Iterator[tuple[str, str]]:
    """(heading, field) in the order of the class, whose comments are the headings."""
    group = ""
    for line in inspect.getsource(Settings).splitlines():
        if found := _GROUP.match(line):
            group = found[1]
        elif (found := _FIELD.match(line)) and found[1] in Settings.model_fields:
            yield group, found[1]


def variable(name: str, field: FieldInfo) -> str:
    """The environment variable of a setting."""
    alias = field.validation_alias
    return str(alias.choices[0]) if isinstance(alias, AliasChoices) else f"CRAGLINE_{name.upper()}"


def _facts(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if isinstance(default, float):
        default = f"{default:g}"
    shown = "unset" if default in (None, {}) else f"default `{str(default).replace('False', 'false')}`"
    return f"{type_name(field.annotation)}{_limits(field)}; {shown}"


def type_name(annotation: Any) -> str:
    arguments = [part for part in get_args(annotation) if part is not type(None)]
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(type_name(part) for part in arguments)
    if origin is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in arguments)
    names = {str: "text", int: "integer", float: "number", bool: "true or false", Path: "path"}
    if origin is dict:
        return "JSON object"
    return "secret" if annotation is SecretStr else names.get(annotation, str(annotation))


def _limits(field: FieldInfo) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    limits = [
        f"{word} {getattr(limit, name):g}"
        for limit in field.metadata
        for name, word in words.items()
        if hasattr(limit, name)
    ]
    return f", {', '.join(limits)}" if limits else ""


def _thresholds(name: str) -> str:
    found = [
        f"{values[name]:g} with {provider} models"
        for provider, values in THRESHOLDS.items()
        if name in values
    ]
    return f": {', '.join(found)}" if found else ""


# -- cli.md ----------------------------------------------------------------------------------------------
_CLI_HEAD = """\
# The command line

{notice}

`make setup` puts the command at `.venv/bin/cragline`.
Exit code 0 means done, 1 that it failed and the error says why, 2 that the words of the command were wrong,
3 that `submit` wanted a yes and nobody could be asked. What became of the questions is no part of it: a batch that
was watched to its end is done, whatever its answers.
`--json` prints JSON on the standard output and nothing else there.
"""


def cli_page() -> str:
    lines = [_CLI_HEAD.format(notice=NOTICE).rstrip("\n")]
    root: Any = typer.main.get_command(app)
    for words, command in commands(root):
        lines += ["", f"## cragline {' '.join(words)}", "", command.help.strip(), ""]
        lines += ["```text", f"cragline {' '.join([*words, *_usage(command)])}", "```", ""]
        lines += [_parameter(parameter) for parameter in command.params]
        if not command.params:
            lines.pop()
    return "\n".join(lines) + "\n"


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(words, command) of every command that does something, in the order of the help."""
    for name, found in getattr(command, "commands", {}).items():
        if getattr(found, "commands", None):
            yield from commands(found, (*words, name))
        else:
            yield (*words, name), found


def _usage(command: Any) -> list[str]:
    arguments = [_argument(p) for p in command.params if p.param_type_name == "argument"]
    return [*(["[OPTIONS]"] if len(arguments) < len(command.params) else []), *arguments]


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"- `{_argument(parameter)}`: {parameter.help}"
    name = ", ".join(parameter.opts) + ("" if parameter.is_flag else " VALUE")
    often = " May be given several times." if parameter.multiple else ""
    default = f" Default: {parameter.default}." if parameter.default and not parameter.is_flag else ""
    return f"- `{name}`: {parameter.help}{often}{default}"


# -- openapi.json ----------------------------------------------------------------------------------------
def openapi_document() -> str:
    """What `/v1/openapi.json` answers, for client generators and for reading."""
    document = create_app(Settings(_env_file=None)).openapi()  # type: ignore[call-arg]
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


# -- schema.md -------------------------------------------------------------------------------------------
_SCHEMA_HEAD = """\
# Tables and views

{notice}

The tables below are made by the migrations in `migrations/versions/`, and the views by the files in
`migrations/views/`. They belong to the program and change with it. People ask the schema `history`, whose names
stay: [The history](history.md).
A `?` behind a type means that the column may be NULL.
"""
_POSTGRES: Any = postgresql.dialect()  # type: ignore[no-untyped-call]
_VIEW = re.compile(r"COMMENT ON VIEW (\w+) IS\s+'(.+?)';", re.DOTALL)


def schema_page() -> str:
    lines = [_SCHEMA_HEAD.format(notice=NOTICE).rstrip("\n")]
    for name, comment in _views():
        lines += ["", f"## View {name}", "", comment]
    for mapper in sorted(Base.registry.mappers, key=lambda mapper: mapper.class_.__tablename__):
        lines += ["", f"## Table {mapper.class_.__tablename__}", ""]
        text = inspect.cleandoc(mapper.class_.__doc__ or "")
        lines += [text, ""] if text else []
        source = inspect.getsource(mapper.class_)
        lines += [_column(column, source) for column in mapper.columns]
    return "\n".join(lines) + "\n"


def _column(column: Any, source: str) -> str:
    """One line; the comment is the one behind the column in the class."""
    kind = str(column.type.compile(dialect=_POSTGRES)).lower()
    said = re.search(rf"^    {column.name}: Mapped\[[^#\n]*# (.+)$", source, re.MULTILINE)
    comment = f": {said[1]}" if said else ""
    return f"- `{column.name}` {kind}{'?' if column.nullable else ''}{comment}"


def _views() -> list[tuple[str, str]]:
    """(name, comment) of the newest version of each view."""
    found: dict[str, str] = {}
    for file in sorted(
        DOCS.parent.glob("migrations/views/*_v*.sql"), key=lambda path: (len(path.name), path.name)
    ):
        for name, comment in _VIEW.findall(file.read_text(encoding="utf-8")):
            found[name] = comment.replace("''", "'")
    return sorted(found.items())


# -- pages with parts between markers ----------------------------------------------------------------------
def marked_page(name: str) -> str:
    """The page as it is, with what stands between its markers made anew. What history.md takes from a
    database is made by history_page.py."""
    return _MARKED.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}{found[3]}", _read(name) or "")


def diagram(adapter: GraphAdapter) -> str:
    """What LangGraph draws of the compiled graph, without the metadata in each node, which is in the table."""
    drawn = adapter.compiled.get_graph().draw_mermaid()
    bare = re.sub(r"<hr/>.*?</small>", "", drawn, flags=re.DOTALL).replace("\t", "  ")
    return f"```mermaid\n{bare.strip()}\n```\n"


def page_graphs() -> str:
    """Nodes and edges of each compiled graph, as LangGraph gives them."""
    made = {}
    for name, adapter in adapters().items():
        drawn = adapter.compiled.get_graph()
        made[name] = {
            "nodes": list(drawn.nodes),
            "edges": [[edge.source, edge.target] for edge in drawn.edges],
        }
    return json.dumps(made, indent=1) + "\n"


def node_table(adapter: GraphAdapter) -> str:
    rows = ["| task | queue | timeout |", "|---|---|---|"]
    rows += [
        f"| `{adapter.task_name(node)}` | {adapter.queue(node)} | {adapter.timeout(node):g} s |"
        for node in adapter.nodes
    ]
    return "\n".join(rows) + "\n"


def statuses(enum: type[StrEnum]) -> str:
    """A table of an enum's values with the comment behind each."""
    rows = ["| status | what it means, and what may follow |", "|---|---|"]
    source = inspect.getsource(enum)
    for member in enum:
        comment = re.search(rf'^    {member.name} = "\w+" *(?:# *(.+))?$', source, re.MULTILINE)
        assert comment is not None, f"{enum.__name__}.{member.name} stands on a line of its own"
        rows.append(f"| `{member.value}` | {comment[1] or ''} |")
    return "\n".join(rows) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    **{f"{name}-diagram": partial(diagram, adapter) for name, adapter in adapters().items()},
    **{f"{name}-nodes": partial(node_table, adapter) for name, adapter in adapters().items()},
    "batch-statuses": partial(statuses, BatchStatus),
    "run-statuses": partial(statuses, RunStatus),
    "claim-statuses": partial(statuses, ClaimStatus),
    "transition-statuses": partial(statuses, TransitionStatus),
}


if __name__ == "__main__":
    sys.exit(main())
