"""What `doctor` finds, without any server."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.cli import doctor, probes, up
from shared.limits import TargetState
from shared.settings import Settings
from shared.stack.process import process_mark
from shared.stack.state import Ends, PartState, StackState, write_state

FLOWER = "http://127.0.0.1:5555"


def settings(home: Path, **values: Any) -> Settings:
    return Settings(home=home, _env_file=None, **values)


def found(findings: Any) -> dict[str, tuple[str, str]]:
    return {finding.what: (finding.level, finding.says) for finding in findings}


def a_stack(home: Path, *, supervised: bool) -> None:
    mark = process_mark(os.getpid())
    state = StackState(os.getpid() if supervised else 2**22 + 1, mark, ready=True)
    state.parts = [PartState("postgres", os.getpid(), None, mark), PartState("beat", 2**22 + 2, None, "x")]
    state.parts.append(PartState("flower", 2**22 + 3, FLOWER, "x"))
    write_state(home, state)


def test_a_running_stack_and_where_its_flower_is(tmp_path: Path) -> None:
    a_stack(tmp_path, supervised=True)
    said = found(doctor._stack(settings(tmp_path)))
    assert said["stack"] == ("ok", "running: postgres, beat, flower")
    assert said["flower"] == ("ok", f"{FLOWER}, user cragline, password: `flower` in {tmp_path}/secrets.json")
    by_setting = found(doctor._stack(settings(tmp_path, flower_password="s3cr3t")))
    assert by_setting["flower"][1].endswith("password: CRAGLINE_FLOWER_PASSWORD")


def test_parts_that_are_down_or_keep_dying_are_named(tmp_path: Path) -> None:
    mark = process_mark(os.getpid())
    state = StackState(os.getpid(), mark, ready=True)
    names = ("postgres", "valkey", "worker-1", "beat")
    state.parts = [PartState(name, os.getpid(), None, mark) for name in names]
    state.parts[1] = PartState("valkey", 2**22 + 2, None, "x")
    state.ends = {"worker-1": Ends(7, "exit code 1"), "beat": Ends(1, "was ended by SIGKILL")}
    write_state(tmp_path, state)
    said = found(doctor._stack(settings(tmp_path)))
    assert "postgres" not in said and said["stack"][0] == "ok"
    assert said["valkey"][0] == "bad" and said["valkey"][1].startswith("down, and about to be started again.")
    log = tmp_path / "logs" / "worker-1.log"
    assert said["worker-1"] == ("bad", f"keeps dying: 7 times lately, last: exit code 1. Its log is {log}")
    assert said["beat"][0] == "note"
    assert said["beat"][1].startswith("died: once lately, last: was ended by SIGKILL.")


@pytest.mark.parametrize("urls", [{}, {"database_url": "postgresql://h/d", "redis_url": "redis://h"}])
def test_what_a_killed_supervisor_left_is_named(tmp_path: Path, urls: dict[str, str]) -> None:
    a_stack(tmp_path, supervised=False)
    level, says = found(doctor._stack(settings(tmp_path, **urls)))["stack"]
    assert level == "bad"
    assert f"parts left behind are running: postgres (pid {os.getpid()}); `cragline down` stops them." in says


def test_a_home_that_cannot_be_one_is_a_finding(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.write_text("")
    said = found(doctor.examine(settings(home)))
    assert said["home"][0] == said["database"][0] == said["redis"][0] == "bad"
    assert "CRAGLINE_HOME" in said["home"][1]


def test_servers_of_ones_own_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def played(url: str, key: str | None) -> tuple[str, str]:
        asked.append((url, key))
        return "bad", "key refused"

    monkeypatch.setattr(probes, "qdrant", played)
    monkeypatch.setattr(probes, "models", played)
    urls = {"qdrant_url": "http://u:s3cr3t@q", "openai_base_url": "http://u:s3cr3t@m/v1"}
    given = settings(tmp_path, **urls, qdrant_api_key="k1", openai_api_key="k2")
    said = found([*doctor._knowledge(given), *doctor._models(given)])
    assert said["vector store"] == said["model server"] == ("bad", "key refused")
    assert asked == [("http://u:s3cr3t@q", "k1"), ("http://u:s3cr3t@m/v1", "k2")]
    assert "s3cr3t" not in str(said)
    assert "http://m/v1" in said["models"][1]


def test_what_costs_money_is_said_to_be_unchecked(tmp_path: Path) -> None:
    said = found(doctor._models(settings(tmp_path, openai_api_key="sk-1", tavily_api_key="tvly-1")))
    assert said["model server"][0] == "note" and "checked" in said["model server"][1]
    assert "not checked" in said["web search"][1]
    assert "model server" not in found(doctor._models(settings(tmp_path)))


def test_a_local_model_with_embeddings_elsewhere_is_looked_at_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "models", lambda url, key: ("ok", f"{key}"))
    given = settings(tmp_path, models="local", embeddings="openai", openai_base_url="http://m/v1")
    assert found(doctor._models(given))["model server"] == ("ok", "None")


def test_up_tells_addresses_without_what_is_secret_in_them(tmp_path: Path) -> None:
    urls = {"qdrant_url": "http://u:s3cr3t@q:1", "openai_base_url": "http://u:s3cr3t@m/v1?key=s3cr3t"}
    told = str(up._facts(settings(tmp_path, **urls), StackState.of_this_process()))
    assert "http://q:1" in told and "http://m/v1" in told
    assert "s3cr3t" not in told


def provider(**values: Any) -> tuple[str, str]:
    usual = TargetState("openai", "http://h/v1", "gpt-4.1-mini", None, None, 0.0, 0, "closed", 0.0, 0)
    finding = doctor._provider(replace(usual, **values))
    assert finding.what == "provider"
    return finding.level, finding.says


def test_limits_and_breakers_are_named() -> None:
    name = "openai gpt-4.1-mini at http://h/v1"
    assert provider() == ("ok", f"{name}: no limit is known; 0 calls wait")
    assert provider(requests_per_minute=500.0, tokens_per_minute=3e4, waiting=7) == (
        "ok",
        f"{name}: 500 calls per minute, 30000 tokens per minute; 7 calls wait",
    )
    assert provider(cooling_seconds=12.3, server="")[1].endswith("It asked for a pause: 12 s more.")
    level, says = provider(breaker="open", breaker_seconds=8.0, failures=6, waiting=3)
    assert level == "bad"
    assert says == f"{name}: 6 calls failed in a row; its calls wait, tried again in 8 s. 3 wait."
    assert "being tried" in provider(breaker="half_open")[1]
