"""`cragline submit` looks first: with a scripted OpenAI, and with what earlier batches measured."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from api.cli import submit
from api.cli.main import app
from api.cli.preflight import NotConfirmed
from shared.errors import CraglineError
from shared.measured import measured
from shared.settings import get_settings
from tests.fakes.openai_server import FakeOpenAI, api_error
from tests.integration.runner.bench import Bench
from tests.unit.workers.nodes.fakes import Script, document

Submit = Callable[..., Result]


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as server:
        yield server


@pytest.fixture
def call(
    database: Engine, fake: FakeOpenAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Submit]:
    """`cragline submit` of three rows, two of them a question, with a collection that is there."""
    for name, value in {
        "CRAGLINE_HOME": str(tmp_path),
        "CRAGLINE_QDRANT_URL": "http://127.0.0.1:9",
        "OPENAI_API_KEY": "sk-test-0123456789",
        "OPENAI_BASE_URL": fake.base_url,
    }.items():
        monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    monkeypatch.setattr(submit, "get_engine", lambda: database)
    monkeypatch.setattr(submit, "wake", lambda _settings: True)
    bench = Bench(database)
    bench.execute(
        "INSERT INTO collections (name, embedding_model, dimension)"
        " VALUES ('default', 'openai/text-embedding-3-small', 3)"
    )
    bench.execute(
        "INSERT INTO documents (collection, source, path, title, content_hash, chunk_ids, embedding_model)"
        " VALUES ('default', 's', '/p', 't', 'h', '{}', 'openai/text-embedding-3-small')"
    )
    (tmp_path / "q.csv").write_text('question\nWho is it?\n""\nWho is it?\n')

    def run(*words: str) -> Result:
        result = CliRunner().invoke(app, ["submit", str(tmp_path / "q.csv"), *words])
        if isinstance(result.exception, CraglineError):
            raise result.exception
        return result

    yield run
    get_settings.cache_clear()


def batches(database: Engine) -> int:
    return int(Bench(database).one("SELECT count(*) AS n FROM batches").n)


def test_a_check_says_everything_and_submits_nothing(
    call: Submit, fake: FakeOpenAI, database: Engine
) -> None:
    result = call("--check", "--json")
    said = json.loads(result.output)
    assert result.exit_code == 0 and said["ok"]
    assert said["counts"]["rows"] == 3 and said["counts"]["questions"] == 1 and said["counts"]["empty"] == 1
    levels = {check["what"]: check["level"] for check in said["checks"]}
    assert levels == {"web search": "note", "collection": "ok", "model": "ok", "vector store": "note"}, said
    assert said["forecast"]["calls"] == [4, 5] and said["forecast"]["cost_usd"][0] > 0
    assert [request.role for request in fake.requests] == ["canary"]
    assert batches(database) == 0


def test_a_file_without_a_question_does_not_pass_the_check(
    call: Submit, fake: FakeOpenAI, tmp_path: Path
) -> None:
    (tmp_path / "q.csv").write_text('question,n\n"",1\n"",2\n')
    result = call("--check", "--json")
    said = json.loads(result.output)
    assert result.exit_code == 1 and not said["ok"]
    assert ["questions", "none of the 2 rows has one"] in [
        [one["what"], one["says"]] for one in said["checks"]
    ]
    assert fake.requests == []


def test_a_model_that_refuses_keeps_the_batch_from_being_submitted(
    call: Submit, fake: FakeOpenAI, database: Engine
) -> None:
    fake.script = lambda _role, _payload: api_error(401, "invalid_api_key")
    with pytest.raises(
        CraglineError, match=r"^Nothing was submitted\. model: gpt-4\.1-mini at http"
    ) as caught:
        call("--yes")
    assert "sk-test" not in str(caught.value)
    assert call("--check").exit_code == 1
    assert batches(database) == 0


def test_a_dear_batch_waits_for_a_yes(
    call: Submit, database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRAGLINE_CONFIRM_ABOVE_USD", "0")
    get_settings.cache_clear()
    with pytest.raises(NotConfirmed, match="Say `--yes`"):
        call()
    assert batches(database) == 0
    said = json.loads(call("--yes", "--json", "--by", "kim", "--priority", "3").output)
    assert (said["submitted_by"], said["priority"], said["preflight"]["ok"]) == ("kim", 3, True)
    assert batches(database) == 1


def test_what_earlier_batches_measured_is_an_average_for_a_question(database: Engine) -> None:
    bench = Bench(database, Script([document("A")], {"A": ("relevant", 0.9)}))
    batch = bench.submit([f"q{number}?" for number in range(10)])
    bench.submit(["too few?"])
    bench.submit([f"another k {number}?" for number in range(10)], k="9")
    bench.heal()
    for cost, role in ((0.02, "relevance_grader"), (0.04, "answer_generator")):
        bench.execute(
            "INSERT INTO model_calls (batch_id, run_id, step, branch, attempt, node, role, provider, model,"
            " prompt_version, request_hash, status, input_tokens, output_tokens, cost_usd, duration_ms)"
            " SELECT batch_id, id, 1, 0, 1, 'n', :role, 'openai', 'm', 'v', 'h', 'ok', 100, 10, :cost, 1 FROM runs",
            role=role,
            cost=cost,
        )
    (one,) = measured(database, bench.plan())
    assert (one.batch_id, one.runs, one.calls, one.input_tokens, one.output_tokens) == (batch, 10, 2, 200, 20)
    assert one.cost_usd == pytest.approx(0.06) and one.searches == 0 and one.per_minute > 0
    bench.execute("UPDATE model_calls SET cost_usd = NULL WHERE role = 'answer_generator'")
    assert measured(database, bench.plan())[0].cost_usd is None

    assert measured(database, Bench(database, models="local").plan()) == []
