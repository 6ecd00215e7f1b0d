"""`cragline export`: what DuckDB and pandas find in the files is what is in the database."""

import json
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas
import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner

from api.cli import export as commands
from api.cli.main import app
from shared import export
from shared.errors import CraglineError, NotFound, UsageError
from shared.stack.testing import Servers
from tests.conftest import own_database
from tests.integration.cluster import read_rows
from tests.integration.runner.bench import Bench
from tests.unit.workers.nodes.fakes import Script, document

QUESTIONS = ["How old?", 'quote " and, comma', "Wie groß? \u202e\U0001f600", None, "How old?"]


@pytest.fixture(scope="module")
def engine(servers: Servers) -> Iterator[Engine]:
    with own_database(servers) as made:
        yield made


@pytest.fixture(scope="module")
def batches(engine: Engine) -> tuple[int, int]:
    script = Script(
        [document("A"), document("B")], {"A": ("relevant", 0.9), "B": ("not_relevant", None)}, web=[]
    )
    bench = Bench(engine, script)
    both = bench.submit(QUESTIONS, "crag"), bench.submit(["Another?"], "rag")
    bench.heal()
    bench.execute(
        "INSERT INTO model_calls (batch_id, run_id, step, branch, attempt, node, role, provider, model, prompt_version,"
        " request_hash, status, response, cost_usd, duration_ms)"
        " SELECT batch_id, id, 1, 0, 1, 'n', 'r', 'openai', 'm', 'v', 'h', 'ok', '{\"a\": [1]}', 0.00000123, 0.5"
        "   FROM runs"
    )
    return both


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_duckdb_finds_every_row_and_its_type(
    engine: Engine, batches: tuple[int, int], tmp_path: Path
) -> None:
    counts = export.export_batch(engine, batches[0], tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"{view}.parquet" for view in counts} | {
        "export.json"
    }
    assert counts["batches"] == 1 and counts["rows"] == 5 and counts["runs"] == 3 and counts["grades"] == 6
    for view, count in counts.items():
        path = tmp_path / "out" / f"{view}.parquet"
        assert duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(count,)]
        if view != "prompts":
            query = f"SELECT count(*) AS n FROM history.{view} WHERE batch_id = {batches[0]}"
            assert read_rows(engine, query)[0].n == count
    place = (tmp_path / "out" / "model_calls.parquet").as_posix()
    kinds = {row[0]: row[1] for row in duckdb.sql(f"DESCRIBE SELECT * FROM '{place}'").fetchall()}
    assert kinds["cost_usd"] == "DECIMAL(14,8)"
    assert kinds["called_at"] == "TIMESTAMP WITH TIME ZONE"
    assert (kinds["run_id"], kinds["step"], kinds["duration_ms"]) == ("BIGINT", "INTEGER", "DOUBLE")
    found = duckdb.sql(f"SELECT cost_usd, response FROM '{place}' WHERE role = 'r'").fetchall()
    assert found == [(Decimal("0.00000123"), '{"a": [1]}')] * 3
    assert json.loads((tmp_path / "out" / "export.json").read_text()) == {
        "batch_id": batches[0],
        "form": "parquet",
        "rows": counts,
    }


def test_pandas_finds_the_same(engine: Engine, batches: tuple[int, int], tmp_path: Path) -> None:
    export.export_batch(engine, batches[0], tmp_path)
    runs = pandas.read_parquet(tmp_path / "runs.parquet")
    assert list(runs["question"]) == ["How old?", 'quote " and, comma', "Wie groß? \u202e\U0001f600"]
    assert str(runs["ended_at"].dtype) == "datetime64[us, UTC]"
    assert list(runs["notes"][0]) == list(read_rows(engine, "SELECT notes FROM runs ORDER BY id")[0].notes)
    together = runs.merge(pandas.read_parquet(tmp_path / "transitions.parquet"), on="run_id")
    assert set(together["node"]) >= {"retrieve", "grade_document", "decide"}


def test_json_lines_say_the_same(engine: Engine, batches: tuple[int, int], tmp_path: Path) -> None:
    counts = export.export_batch(engine, batches[0], tmp_path, "jsonl")
    assert {view: len(lines(tmp_path / f"{view}.jsonl")) for view in counts} == counts
    calls = lines(tmp_path / "model_calls.jsonl")
    assert [call["response"] for call in calls if call["role"] == "r"] == [{"a": [1]}] * 3
    assert lines(tmp_path / "runs.jsonl")[2]["question"] == "Wie groß? \u202e\U0001f600"
    assert datetime.fromisoformat(lines(tmp_path / "runs.jsonl")[0]["ended_at"]).tzinfo is not None


def test_an_export_is_whole_or_not_there(
    engine: Engine, batches: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export.export_batch(engine, batches[0], tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    real = export._parquet

    def full(connection: Any, query: str, batch_id: int, path: Path) -> int:
        if "transitions" in path.name:
            raise OSError(28, "No space left on device", str(path))
        return real(connection, query, batch_id, path)

    monkeypatch.setattr(export, "_parquet", full)
    with pytest.raises(CraglineError, match="No space left"):
        export.export_batch(engine, batches[0], tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_cannot_be_exported_is_said(engine: Engine, batches: tuple[int, int], tmp_path: Path) -> None:
    export.export_batch(engine, batches[1], tmp_path / "one")
    with pytest.raises(UsageError, match=f"holds an export of batch {batches[1]}"):
        export.export_batch(engine, batches[0], tmp_path / "one")
    with pytest.raises(NotFound):
        export.export_batch(engine, 999_999, tmp_path / "two")
    (tmp_path / "file").write_text("")
    with pytest.raises(CraglineError, match="cannot be written"):
        export.export_batch(engine, batches[0], tmp_path / "file")


def test_every_column_has_a_type_in_files(engine: Engine) -> None:
    """A column that other work brings must not be what fails an export."""
    import pyarrow as pa

    with engine.connect() as connection:
        for view in [*export._VIEWS, "prompts"]:
            there = connection.exec_driver_sql(f"SELECT to_regclass('history.{view}')").scalar()
            if there is not None:
                cursor = connection.exec_driver_sql(f"SELECT * FROM history.{view} LIMIT 0").cursor
                assert [export._arrow_type(pa, column) for column in cursor.description]


def test_the_command(
    engine: Engine, batches: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "get_engine", lambda: engine)
    done = CliRunner().invoke(app, ["export", str(batches[1]), "--jsonl", str(tmp_path), "--json"])
    assert json.loads(done.stdout)["rows"]["runs"] == 1
    with pytest.raises(UsageError):
        CliRunner().invoke(app, ["export", str(batches[1])], catch_exceptions=False)
