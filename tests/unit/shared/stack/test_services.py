import os
import socket
from pathlib import Path

import pytest

from shared.errors import StackError
from shared.settings import Settings
from shared.stack.services import (
    api_part,
    beat_part,
    check_graphs,
    child_env,
    choose_api_port,
    choose_flower_port,
    flower_part,
    worker_part,
)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("CRAGLINE_", "OPENAI_", "TAVILY_", "FLOWER_")):
            monkeypatch.delenv(name)


def settings(home: Path, **values: object) -> Settings:
    return Settings(home=home, _env_file=None, **values)  # type: ignore[arg-type]


def flag(command: object, name: str) -> str:
    words = list(command)  # type: ignore[call-overload]
    return str(words[words.index(name) + 1])


def test_children_read_the_very_settings_of_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(
        tmp_path,
        database_url="postgresql://u:p@h/d",
        redis_url="redis://:p@h/0",
        openai_api_key="sk-1",
        role_models={"router": "tiny"},
        log_json=True,
        worker_threads=3,
    )
    for name, value in child_env(given).items():
        monkeypatch.setenv(name, value)
    assert Settings(_env_file=None).model_dump() == given.model_dump()  # type: ignore[call-arg]


def test_flowers_own_variables_do_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWER_UNAUTHENTICATED_API", "true")
    monkeypatch.setenv("FLOWER_BASIC_AUTH", "root:root")
    assert not [name for name in child_env(settings(tmp_path)) if name.startswith("FLOWER_")]


def test_what_is_not_set_is_not_passed(tmp_path: Path) -> None:
    env = child_env(settings(tmp_path))
    assert env["CRAGLINE_HOME"] == str(tmp_path)
    assert not [name for name in env if name.startswith("CRAGLINE_") and name != "CRAGLINE_HOME"]


def test_only_the_first_worker_serves_the_local_store(tmp_path: Path) -> None:
    given = settings(tmp_path)
    first = worker_part(given, 1, {}, lambda node: True).command
    second = worker_part(given, 2, {}, lambda node: True).command
    assert flag(first, "-Q") == "retrieval,models,web,control"
    assert flag(second, "-Q") == "models,web,control"


def test_with_a_qdrant_server_every_worker_serves_all(tmp_path: Path) -> None:
    given = settings(tmp_path, qdrant_url="http://q:6333")
    assert flag(worker_part(given, 2, {}, lambda node: True).command, "-Q") == "retrieval,models,web,control"


def test_a_worker_is_asked_by_its_node_name_and_given_time_to_drain(tmp_path: Path) -> None:
    asked: list[str] = []
    part = worker_part(
        settings(tmp_path, model_timeout=200, worker_threads=5), 2, {}, lambda node: bool(asked.append(node))
    )
    assert not part.ready()
    assert asked == [f"worker-2@{socket.gethostname()}"]
    assert flag(part.command, "--concurrency") == "5"
    assert part.stops[0][1] > 200


def test_no_secret_on_a_command_line_or_in_a_repr(tmp_path: Path) -> None:
    given = settings(
        tmp_path,
        database_url="postgresql://u:s3cr3t@h/d",
        redis_url="redis://:s3cr3t@h/0",
        flower_password="s3cr3t",
        openai_api_key="s3cr3t",
    )
    env = child_env(given)
    parts = [
        worker_part(given, 1, env, lambda node: True),
        beat_part(given, env),
        flower_part(given, env, 5999),
    ]
    assert "s3cr3t" in " ".join(env.values())
    for part in parts:
        assert "s3cr3t" not in " ".join(part.command)
        assert "s3cr3t" not in repr(part)


def test_beat_is_ready_only_with_a_schedule_of_this_start(tmp_path: Path) -> None:
    (tmp_path / "beat").mkdir()
    old = tmp_path / "beat" / "schedule.db"
    old.touch()
    os.utime(old, (1, 1))
    part = beat_part(settings(tmp_path), {})
    assert not part.ready()
    old.touch()
    assert part.ready()


def test_a_taken_port_that_was_asked_for_is_an_error_with_a_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StackError) as caught:
            choose_flower_port(port)
        assert str(port) in str(caught.value)
        assert "--flower-port" in str(caught.value)
    assert choose_flower_port(port) == port


def test_without_a_wish_a_taken_usual_port_is_stepped_around(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # another stack of this machine may hold the usual port
    monkeypatch.setattr("shared.stack.services.tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("shared.stack.services.port_is_free", lambda port: port != 5555)
    assert choose_flower_port(None) != 5555
    monkeypatch.setattr("shared.stack.services.port_is_free", lambda port: True)
    assert choose_flower_port(None) == 5555


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "from shared.errors import CraglineError\n"
            "def adapters(): raise CraglineError('crag.x: a subgraph\\ncannot run as Celery tasks')",
            "crag.x: a subgraph cannot run as Celery tasks",
        ),
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name' ("),
        ("def adapters(): return {}", None),
    ],
)
def test_graphs_that_cannot_run_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, expected: str | None
) -> None:
    """The real check, with `workers.runner.pipelines` played by a module of the test."""
    (tmp_path / "played.py").write_text(code)
    (tmp_path / "sitecustomize.py").write_text(PLAYED)
    env = child_env(settings(tmp_path))
    env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{env['PYTHONPATH']}"
    if expected is None:
        check_graphs(settings(tmp_path), env)
        return
    with pytest.raises(StackError) as caught:
        check_graphs(settings(tmp_path), env)
    message = str(caught.value)
    assert message.startswith(f"The pipelines cannot run: {expected}")
    assert "\n" not in message and "Traceback" not in message


PLAYED = """
import importlib.util, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "workers.runner.pipelines":
            import pathlib
            return importlib.util.spec_from_file_location(name, pathlib.Path(__file__).with_name("played.py"))
sys.meta_path.insert(0, Finder())
"""


def test_the_graphs_of_this_version_can_run(tmp_path: Path) -> None:
    check_graphs(settings(tmp_path), child_env(settings(tmp_path)))


# -- the HTTP API -----------------------------------------------------------------------------------------
def test_the_api_is_open_to_this_machine_only_with_the_embedded_database(tmp_path: Path) -> None:
    embedded = api_part(settings(tmp_path), {}, 8585, embedded=True)
    assert "--embedded" in embedded.command
    assert "--host=127.0.0.1" in embedded.command
    assert "--embedded" not in api_part(settings(tmp_path), {}, 8585, embedded=False).command
    assert embedded.url == "http://127.0.0.1:8585"


def test_the_apis_port_is_never_flowers() -> None:
    port = choose_api_port(None, avoid=[])
    assert choose_api_port(None, avoid=[port]) != port
    with pytest.raises(StackError, match="--api-port"):
        choose_api_port(port, avoid=[port])
