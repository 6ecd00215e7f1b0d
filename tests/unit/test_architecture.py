"""The import arrows: api -> shared <- workers, nodes are plain functions, and one file knows LangGraph."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "workers", "shared", "migrations")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it, those for type checking too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute, so that the arrows can be read"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def under(folder: str) -> list[Path]:
    return [path for path in FILES if path.relative_to(ROOT).as_posix().startswith(f"{folder}/")]


def offenders(files: list[Path], *forbidden: str) -> list[str]:
    assert files, "there is something to look at"
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in imports(path)
        if any(name == prefix or name.startswith(f"{prefix}.") for prefix in forbidden)
    ]


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("api", ("workers",)),
        ("workers", ("api",)),
        ("shared", ("api", "workers", "migrations")),
        ("migrations", ("api", "workers")),
        (
            "workers/nodes",
            (
                "celery",
                "kombu",
                "redis",
                "sqlalchemy",
                "psycopg",
                "langgraph",
                "os",
                "shared.settings",
                "shared.db",
                "shared.tables",
                "shared.queue",
                "workers.runner",
                "workers.graphs",
                "workers.bootstrap",
                "workers.celery_app",
                "workers.stores",
            ),
        ),
        (
            "workers/graphs",
            ("celery", "sqlalchemy", "shared.settings", "shared.db", "workers.runner", "workers.stores"),
        ),
        (
            "workers/models",
            ("celery", "sqlalchemy", "shared.db", "workers.runner", "workers.nodes", "workers.graphs"),
        ),
        ("workers/stores", ("celery", "workers.runner", "workers.nodes", "workers.graphs")),
        (
            "workers/runner",
            ("workers.bootstrap", "workers.celery_app", "workers.stores", "workers.models.openai"),
        ),
    ],
)
def test_no_import_against_the_arrows(folder: str, forbidden: tuple[str, ...]) -> None:
    assert offenders(under(folder), *forbidden) == []


def test_only_the_adapter_touches_langgraphs_inside() -> None:
    inside = ("langgraph.pregel", "langgraph.channels", "langgraph._internal", "langgraph.errors")
    files = [path for path in under("workers") if path.name != "graph_adapter.py"]
    assert offenders(files, *inside) == []


def test_only_the_settings_read_the_environment() -> None:
    """A child process's environment may be built from it; a value of ours is never read from it."""
    readers = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path in FILES
        if path.name != "settings.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Call, ast.Subscript))
        and ast.unparse(node).startswith(("os.getenv(", "os.environ.get(", "os.environ["))
        and "CRAGLINE" in ast.unparse(node)
    ]
    assert readers == []


def test_every_module_says_what_it_is_and_stays_readable() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if text.strip():
            assert ast.get_docstring(ast.parse(text)), f"{path.relative_to(ROOT)} has no docstring"
        limit = 500 if "versions" in path.parts else 420
        assert text.count("\n") <= limit, f"{path.relative_to(ROOT)} is too long: look at it again"


def test_every_package_folder_is_a_package() -> None:
    """setuptools finds packages by their `__init__.py`; a folder without one is not installed."""
    for folder in {path.parent for path in FILES} - {ROOT / "migrations" / "versions"}:
        assert (folder / "__init__.py").exists(), folder.relative_to(ROOT)
