"""Writes what docs/history.md takes from a database: views and columns, the diagram, the outputs of queries.

python docs/history_page.py           write the page
python docs/history_page.py --check   write nothing; exit code 1 when the page is stale

The queries stand on the page itself. Each block of `sql` is run on the batches of docs/history_demo.py, and
the block of `text` behind it is what it came to.
"""

import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from sqlalchemy import Engine, text

from api.cli.output import print_rows
from shared import history
from shared.db import make_engine, transaction
from shared.migrate import upgrade
from shared.stack.testing import embedded_servers

PAGE = Path(__file__).resolve().parent / "history.md"
WIDTH = 150
CELL = 110  # characters of a value
_QUERY = re.compile(r"(```sql\n(.*?)```\n\n)(?:```text\n.*?```\n\n)?", re.DOTALL)
_MARKED = re.compile(r"(<!-- from the database: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_COLUMNS = """
SELECT relname::text AS view, obj_description(pg_class.oid, 'pg_class') AS about, attname::text AS name,
       format_type(atttypid, atttypmod) AS type, col_description(pg_class.oid, attnum) AS said
  FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0
 WHERE relnamespace = 'history'::regnamespace AND relkind = 'v'
 ORDER BY relname, attnum
"""
_FUNCTIONS = """
SELECT proname::text AS name, pg_get_function_identity_arguments(oid) AS arguments,
       pg_get_function_result(oid) AS result, obj_description(oid, 'pg_proc') AS about
  FROM pg_proc WHERE pronamespace = 'history'::regnamespace ORDER BY proname
"""
_SHORT = {"timestamp with time zone": "timestamptz", "double precision": "float8"}
# In the diagram: the views over one table each, and the columns by which they are joined.
_ENTITIES = (
    "batches", "rows", "runs", "transitions", "grades", "model_calls", "web_searches", "claims", "events",
    "retrievals", "prompts", "documents", "collections", "ingest_files",
)  # fmt: skip
_KEYS = re.compile(
    r"^(\w+_id|row_number|step|branch|attempt|document_rank|collection|source|role|version|prompt_version)$"
)
_JOINS = (
    ("batches", "||--|{", "rows", "batch_id"),
    ("batches", "||--|{", "runs", "batch_id"),
    ("runs", "|o--|{", "rows", "run_id"),
    ("runs", "||--o{", "transitions", "run_id"),
    ("transitions", "||--o|", "grades", "run_id, step, document_rank = branch"),
    ("transitions", "||--o{", "model_calls", "run_id, step, branch, attempt"),
    ("transitions", "||--o{", "web_searches", "run_id, step, branch, attempt"),
    ("transitions", "||--o{", "retrievals", "run_id, step, branch, attempt"),
    ("runs", "||--o{", "claims", "run_id"),
    ("batches", "||--o{", "events", "batch_id"),
    ("prompts", "|o--o{", "model_calls", "role, version = prompt_version"),
    ("documents", "|o--o{", "grades", "source"),
    ("collections", "||--o{", "documents", "name = collection"),
    ("collections", "|o--o{", "batches", "name = collection"),
    ("collections", "|o--o{", "ingest_files", "name = collection"),
)


def render(engine: Engine, page: str) -> str:
    """The page with everything that comes from the database made anew. The demo must be in it."""
    parts = {"diagram": diagram, "views": views, "functions": functions}
    page = _MARKED.sub(lambda found: f"{found[1]}{parts[found[2]](engine)}{found[3]}", page)
    return _QUERY.sub(lambda found: f"{found[1]}```text\n{output(engine, found[2])}```\n\n", page)


def output(engine: Engine, query: str) -> str:
    """What `cragline sql` prints for a query, without the blanks at the ends of its lines."""
    found = history.query(engine, query)
    out = io.StringIO()
    print_rows(Console(file=out, width=WIDTH), found.columns, found.rows, width=CELL)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    count = f"{len(found.rows)} row{'s' * (len(found.rows) != 1)}"
    return "\n".join([*(line for line in lines if line), count]) + "\n"


def views(engine: Engine) -> str:
    lines: list[str] = []
    for row in _rows(engine, _COLUMNS):
        if f"### history.{row.view}" not in lines:
            lines += ["", f"### history.{row.view}", "", row.about, ""]
        lines.append(f"- `{row.name}` {_SHORT.get(row.type, row.type)}: {row.said}")
    return "\n".join(lines).lstrip("\n") + "\n"


def functions(engine: Engine) -> str:
    lines: list[str] = []
    for row in _rows(engine, _FUNCTIONS):
        result = (
            row.result.removeprefix("TABLE(").removesuffix(")")
            if row.result.startswith("TABLE(")
            else row.result
        )
        returns = "rows of" if row.result.startswith("TABLE(") else "returns"
        lines += [f"- `history.{row.name}({row.arguments})` {returns} `{result}`. {row.about}"]
    return "\n".join(lines) + "\n"


def diagram(engine: Engine) -> str:
    columns: dict[str, list[tuple[str, str]]] = {}
    for row in _rows(engine, _COLUMNS):
        columns.setdefault(row.view, []).append((_SHORT.get(row.type, row.type), row.name))
    lines = ["```mermaid", "erDiagram"]
    for view in _ENTITIES:
        if view in columns:
            kept = [
                (kind, name)
                for kind, name in columns[view]
                if _KEYS.match(name) or name == columns[view][0][1]
            ]
            lines += [
                f"  {view} {{",
                *(f"    {kind.replace('[]', '_array')} {name}" for kind, name in kept),
                "  }",
            ]
    lines += [f'  {a} {how} {b} : "{on}"' for a, how, b, on in _JOINS if a in columns and b in columns]
    return "\n".join([*lines, "```"]) + "\n"


def _rows(engine: Engine, query: str) -> list[Any]:
    with transaction(engine) as session:
        return list(session.execute(text(query)))


def main() -> int:
    from history_demo import tell  # beside this file

    old = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="cragline-docs-") as folder:
        Path(folder).chmod(0o755)  # Postgres, started by root, runs as another user
        with embedded_servers(Path(folder) / "home") as servers:
            upgrade(servers.database_url)
            engine = make_engine(servers.database_url)
            tell(engine)
            new = render(engine, old)
            engine.dispose()
    if new == old:
        return 0
    if "--check" in sys.argv[1:]:
        print("docs/history.md is stale: run `make docs`")
        return 1
    PAGE.write_text(new, encoding="utf-8")
    print("wrote docs/history.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
