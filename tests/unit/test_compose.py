"""docker-compose.yml and what belongs to it, read as text: no engine is needed."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import AliasChoices

from shared.queue import QUEUES
from shared.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
OVERRIDE = ROOT / "tests" / "compose" / "compose.test.yml"
# Compose refuses a key that it does not know; so does this test, where compose is not installed.
SERVICE_KEYS = {
    *("image", "build", "command", "entrypoint", "user", "working_dir", "environment", "volumes", "ports"),
    *("tmpfs", "read_only", "init", "cap_drop", "security_opt", "restart", "logging", "shm_size", "profiles"),
    *("depends_on", "healthcheck", "stop_grace_period"),
}
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period"}
ONE_SHOT = {"migrate", "cragline"}
APP = {"migrate", "cragline", "beat", "flower", "api"}  # and the workers
SECRETS = {
    "POSTGRES_PASSWORD": "pg1",
    "REDIS_PASSWORD": "re1",
    "QDRANT_API_KEY": "qd1",
    "CRAGLINE_FLOWER_PASSWORD": "fl1",
}


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, as compose does; knows compose's tags."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    names = [key.value for key, _ in node.value if key.value != "<<"]
    assert len(names) == len(set(names)), f"a key stands twice near line {node.start_mark.line + 1}"
    loader.flatten_mapping(node)
    return {
        loader.construct_object(key): loader.construct_object(value, deep=True) for key, value in node.value
    }


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("!override", lambda loader, node: _mapping(loader, node))
_Loader.add_constructor("!reset", lambda loader, node: None)


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    return loaded


FILE = load(COMPOSE)
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
WORKERS = {name: service for name, service in SERVICES.items() if name.startswith("worker-")}
each_service = pytest.mark.parametrize("name", SERVICES)


def variables() -> set[str]:
    """The names under which Settings reads its values."""
    names = set()
    for field, info in Settings.model_fields.items():
        alias = info.validation_alias
        choice = alias.choices[0] if isinstance(alias, AliasChoices) else f"CRAGLINE_{field.upper()}"
        names.add(str(choice))
    return names


def after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def seconds(text: str) -> float:
    """`${STOP_GRACE:-90s}` or `30s`."""
    found = re.fullmatch(r"(?:\$\{\w+:-)?(\d+)s\}?", text)
    assert found, f"{text} is not in seconds"
    return float(found[1])


def test_the_services_are_those_of_the_handbook() -> None:
    assert set(SERVICES) == {
        *("postgres", "redis", "qdrant", "migrate", "beat", "flower", "api", "cragline"),
        *(f"worker-{queue}" for queue in QUEUES),
    }


def test_every_key_is_one_that_compose_knows() -> None:
    sections = {"name", "services", "volumes"}
    assert {key for key in FILE if not key.startswith("x-")} == sections
    for name, service in SERVICES.items():
        assert set(service) <= SERVICE_KEYS, name
        assert set(service.get("healthcheck", {})) <= HEALTH_KEYS, name


@each_service
def test_a_service_has_a_health_check_or_ends_by_itself(name: str) -> None:
    service = SERVICES[name]
    if name in ONE_SHOT:
        assert service["restart"] == "no"
        return
    assert service["restart"] == "unless-stopped"
    check = service["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL") and len(check["test"]) > 1
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)
    assert seconds(check["timeout"]) >= 5


@each_service
def test_an_image_is_pinned(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].partition(":")
    assert image and re.fullmatch(r"v?\d+\.\d+(\.\d+)?(-[a-z]+)?", tag), f"{SERVICES[name]['image']}"


def test_the_base_image_is_pinned_and_the_same_in_both_files() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"^ARG BASE=(python:3\.\d+\.\d+-slim-bookworm)$", dockerfile, re.MULTILINE)
    assert found
    assert SERVICES["migrate"]["build"]["args"]["BASE"] == f"${{BASE:-{found[1]}}}"
    assert re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE) == ["${BASE}", "${BASE}"]


def test_one_service_builds_the_image_that_all_of_the_application_use() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    ours = {name for name, service in SERVICES.items() if service["image"] == f"cragline:{version}"}
    assert ours == APP | set(WORKERS)
    assert [name for name, service in SERVICES.items() if "build" in service] == ["migrate"]


@each_service
def test_a_service_does_not_run_as_root(name: str) -> None:
    user = SERVICES[name]["user"]
    default = re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", user)
    assert default.split(":")[0] not in ("", "0", "root")
    if name in APP | set(WORKERS):
        dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        assert default == "10001:10001" and "\nUSER 10001:10001\n" in dockerfile


@each_service
def test_a_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["init"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "network_mode", "pid", "cap_add"} & set(service)
    # what Qdrant writes beside its storage could not be tried
    assert service.get("read_only", False) is (name != "qdrant")
    assert not any("docker.sock" in volume for volume in service.get("volumes", []))


@each_service
def test_ports_are_published_on_this_host_only(name: str) -> None:
    ports = SERVICES[name].get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in ports)
    published = {"flower": "5555", "api": "8585"}
    assert bool(ports) == (name in published)
    if name in published:
        port = published[name]
        assert f"--port={port}" in SERVICES[name]["command"] and ports[0].endswith(f":{port}")
        assert SERVICES[name]["healthcheck"]["test"][-2:] == [name, port]


@each_service
def test_no_value_is_a_literal_secret(name: str) -> None:
    for variable, value in SERVICES[name].get("environment", {}).items():
        if re.search(r"PASSWORD|KEY|AUTH|TOKEN|SECRET", variable) and "INITDB" not in variable:
            assert value is None or re.fullmatch(r"\$\{\w+:\?set it in \.env\}", value), variable
        assert not re.search(r"://[^/$]*:[^$/]+@", str(value)), f"{variable}: a password in a URL"


def test_every_password_is_asked_for_and_in_the_example_without_a_value() -> None:
    asked = set(re.findall(r"\$\{(\w+):\?", COMPOSE.read_text(encoding="utf-8")))
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    empty = set(re.findall(r"^(\w+)=$", example, re.MULTILINE))
    assert asked == empty == set(SECRETS)
    assert re.findall(r"^\w+=.+$", example, re.MULTILINE) == []
    assert ".env" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()


def test_the_build_sees_neither_env_files_nor_data() -> None:
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert let_in == {
        "pyproject.toml",
        "requirements.lock",
        "api",
        "shared",
        "workers",
        "migrations",
        "docker",
    }
    assert all((ROOT / name).exists() for name in let_in)
    assert "**/.env*" in lines
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {word.split("/")[0] for line in copied for word in line.split()} <= let_in


def test_the_workers_serve_every_queue_once() -> None:
    served = [queue for worker in WORKERS.values() for queue in after(worker["command"], "-Q").split(",")]
    assert sorted(served) == sorted(QUEUES)
    for name, worker in WORKERS.items():
        node = after(worker["command"], "-n")
        assert (
            node == f"{name.removeprefix('worker-')}@%h"
        )  # %h: the copies of a service need names of their own
        assert worker["healthcheck"]["test"][-2:] == ["worker", node.removesuffix("@%h")]
        assert after(worker["command"], "--pool") == "threads"
        assert not {"container_name", "hostname", "ports"} & set(worker)  # they would forbid --scale


def test_every_setting_reaches_the_application_and_nothing_else_does() -> None:
    known = variables()
    for name in APP | set(WORKERS):
        assert set(SERVICES[name]["environment"]) <= known, name
    assert set(SERVICES["flower"]["environment"]) == known, "a setting is missing in x-settings"
    only_flower = {"CRAGLINE_FLOWER_USER", "CRAGLINE_FLOWER_PASSWORD", "CRAGLINE_FLOWER_CONTROL"}
    for name in set(WORKERS) | {"cragline", "beat", "api"}:
        assert set(SERVICES[name]["environment"]) == known - only_flower, name


def test_settings_pass_through_when_set_and_are_absent_otherwise() -> None:
    fixed = {name for name, value in FILE["x-settings"].items() if value is not None}
    assert fixed == {
        "CRAGLINE_HOME",
        "CRAGLINE_DATABASE_URL",
        "CRAGLINE_REDIS_URL",
        "CRAGLINE_QDRANT_URL",
        "CRAGLINE_QDRANT_API_KEY",
    }


def test_the_urls_name_services_and_can_be_read() -> None:
    def filled(name: str) -> str:
        return re.sub(r"\$\{(\w+):\?[^}]*\}", lambda m: SECRETS[m[1]], FILE["x-settings"][name])

    settings = Settings(
        _env_file=None,  # type: ignore[call-arg]
        **{name: filled(f"CRAGLINE_{name.upper()}") for name in ("database_url", "redis_url", "qdrant_url")},
    )
    assert settings.database_url and settings.redis_url and settings.qdrant_url
    from shared.db import sqlalchemy_url

    database = sqlalchemy_url(settings.database_url.get_secret_value())
    env = SERVICES["postgres"]["environment"]
    assert (database.username, database.database) == (env["POSTGRES_USER"], env["POSTGRES_DB"])
    hosts = {database.host, *re.findall(r"@?(\w+):6\d{3}", settings.redis_url.get_secret_value())}
    hosts |= set(re.findall(r"//(\w+):6333", settings.qdrant_url))
    assert hosts == {"postgres", "redis", "qdrant"} <= set(SERVICES)


def test_stopping_waits_longer_than_a_model_call() -> None:
    longest = Settings(_env_file=None).model_timeout  # type: ignore[call-arg]
    for name, worker in WORKERS.items():
        assert seconds(worker["stop_grace_period"]) >= longest + 15, name
    assert all("stop_grace_period" in service for service in SERVICES.values())


def test_dependencies_wait_for_health_and_for_the_migration() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other == "migrate" else "service_healthy"
            assert how == {"condition": wanted}, f"{name} on {other}"
    for name in {*WORKERS, "beat", "flower", "api"}:
        assert {"postgres", "redis", "migrate"} <= set(SERVICES[name]["depends_on"]), name
    assert "qdrant" in WORKERS["worker-retrieval"]["depends_on"]
    assert set(SERVICES["migrate"]["depends_on"]) == {"postgres"}


def test_files_to_ingest_are_where_the_worker_reads_them() -> None:
    def knowledge(name: str) -> list[str]:
        return [volume for volume in SERVICES[name]["volumes"] if ":/knowledge" in volume]

    assert knowledge("cragline") == knowledge("worker-retrieval") != []
    assert knowledge("cragline")[0].endswith(":ro")


def test_redis_keeps_its_messages() -> None:
    command = SERVICES["redis"]["command"][-1]
    assert "--appendonly yes" in command and "--maxmemory-policy noeviction" in command
    assert "$$REDISCLI_AUTH" in command  # `$$`: filled in inside, so that it is on no command line
    assert command.startswith("exec ")  # or the shell, not Redis, would get the signal to stop
    assert SERVICES["redis"]["volumes"] == ["redis:/data"]


def test_postgres_has_room_for_the_workers_connections() -> None:
    limit = int(SERVICES["postgres"]["command"][-1].removeprefix("max_connections="))
    threads = Settings(_env_file=None).worker_threads  # type: ignore[call-arg]
    assert limit >= (len(WORKERS) + 4) * (2 * threads + 2)


def test_named_volumes_are_declared() -> None:
    used = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if not volume.startswith(("$", ".", "/"))
    }
    assert used == set(FILE["volumes"])


def test_commands_name_things_that_exist() -> None:
    from typer.main import get_command

    from api.cli.main import app as cli

    group: Any = get_command(cli)
    migrate = SERVICES["migrate"]["command"]
    assert migrate[0] == "cragline" and migrate[2] in group.commands[migrate[1]].commands
    assert SERVICES["cragline"]["entrypoint"] == ["cragline"]
    for name in {*WORKERS, "beat", "flower"}:
        command = SERVICES[name]["command"]
        assert command[0] == "celery" and command[3] in ("worker", "beat", "flower")
        module = after(command, "-A").replace(".", "/")
        assert (ROOT / f"{module}.py").is_file()
        health = SERVICES[name]["healthcheck"]["test"][2]
        assert health == "/opt/cragline/health.py" and (ROOT / "docker" / "health.py").is_file()
    module = after(SERVICES["api"]["command"], "-m").replace(".", "/")
    assert (ROOT / f"{module}.py").is_file()
    config = next(word for word in SERVICES["flower"]["command"] if word.startswith("--conf="))
    assert (ROOT / config.removeprefix("--conf=/opt/cragline/site/")).is_file()
    schedule = after(SERVICES["beat"]["command"], "--schedule")
    assert SERVICES["beat"]["healthcheck"]["test"][-2:] == ["beat", schedule]


def test_the_override_changes_only_services_that_exist() -> None:
    override = load(OVERRIDE)
    assert set(override["services"]) <= set(SERVICES)
    assert override["services"]["qdrant"] is None
    left = {name for name in SERVICES if override["services"].get(name, {}) is not None}
    merged = {name: (override["services"].get(name) or {}).get("depends_on") or SERVICES[name].get("depends_on", {})
              for name in left}  # fmt: skip
    assert all(set(wanted) <= left for wanted in merged.values()), "something still waits for qdrant"


def _compose() -> list[str] | None:
    """`docker compose`, or `docker-compose`, of a version that reads this file; None when there is none."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        done = subprocess.run(
            [*command, "version", "--short"], capture_output=True, text=True, timeout=30, check=False
        )
        found = re.match(r"v?(\d+)\.(\d+)", done.stdout)
        if done.returncode == 0 and found and (int(found[1]), int(found[2])) >= (2, 24):
            return command
    return None


@pytest.fixture(scope="module")
def compose() -> list[str]:
    found = _compose()
    if found is None:
        pytest.skip("compose 2.24 or newer is not installed, so its own check of the file was left out")
    return found


def _config(compose: list[str], tmp_path: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "DOCKER_CONFIG")}
    empty = tmp_path / "empty.env"  # instead of a developer's own .env
    empty.touch()
    return subprocess.run(
        [*compose, "--env-file", str(empty), "-f", str(COMPOSE), *words],
        cwd=ROOT, env=clean | env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_compose_takes_the_file(compose: list[str], tmp_path: Path) -> None:
    done = _config(compose, tmp_path, "--profile", "tools", "config", "--format", "json", **SECRETS)
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    assert set(services) == set(SERVICES)
    assert services["worker-models"]["environment"]["OPENAI_API_KEY"] is None


def test_compose_takes_the_override(compose: list[str], tmp_path: Path) -> None:
    done = _config(compose, tmp_path, "-f", str(OVERRIDE), "config", "-q", **SECRETS, BASE="base:1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("missing", SECRETS)
def test_compose_refuses_to_start_without_a_password(
    compose: list[str], tmp_path: Path, missing: str
) -> None:
    given = {name: value for name, value in SECRETS.items() if name != missing}
    done = _config(compose, tmp_path, "config", "-q", **given)
    assert done.returncode != 0
    assert missing in done.stderr and "set it in .env" in done.stderr
