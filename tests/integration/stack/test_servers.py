"""Postgres and Valkey by themselves: their data, their passwords, and who runs them."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from shared.db import make_engine
from shared.errors import StackError
from shared.stack import postgres_user
from shared.stack.postgres import postgres_part
from shared.stack.postgres_user import find_place, remove_data
from shared.stack.process import command_of, free_port, launch, process_mark, stop_all, wait_ready
from shared.stack.secrets import ensure_secrets, secrets_path
from shared.stack.testing import Servers, embedded_servers

ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="only root needs another user for Postgres")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="cragline-stack-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home below a folder closed to others (mode 700)."""
    path = tmp_path / "home with 'blanks'"
    yield path
    remove_data(path)


def write(servers: Servers, value: str) -> None:
    with psycopg.connect(servers.database_url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (value text)")
        connection.execute("INSERT INTO kept VALUES (%s)", (value,))


def read(servers: Servers) -> list[str]:
    with psycopg.connect(servers.database_url) as connection:
        return [row[0] for row in connection.execute("SELECT value FROM kept ORDER BY value")]


def test_data_stays_over_a_restart_and_nothing_is_left_running(home: Path) -> None:
    with embedded_servers(home, fsync=True, keep=True) as servers:
        write(servers, "žluťoučký 猫")
        redis.Redis.from_url(servers.redis_url).set("key", "value")
        pids = [servers.postgres.process.pid, servers.valkey.process.pid]
    assert [process_mark(pid) for pid in pids] == [None, None]
    assert not (home / "postgres" / "data" / "postmaster.pid").exists()
    with embedded_servers(home, keep=True) as servers:
        assert read(servers) == ["žluťoučký 猫"]
        assert redis.Redis.from_url(servers.redis_url).get("key") == b"value"


def test_the_database_is_utf8_and_sorts_the_same_everywhere(home: Path) -> None:
    with embedded_servers(home) as servers, psycopg.connect(servers.database_url) as connection:
        asked = "pg_encoding_to_char(encoding), datlocprovider, datlocale"
        found = connection.execute(f"SELECT {asked} FROM pg_database WHERE datname = 'cragline'")
        assert found.fetchone() == ("UTF8", "b", "C.UTF-8")
        assert connection.execute("SELECT lower('ÄÉ'), 'é' ~ '[[:alpha:]]'").fetchone() == ("äé", True)


def test_both_want_their_password_and_show_it_nowhere(home: Path) -> None:
    with embedded_servers(home) as servers:
        secrets = ensure_secrets(home)
        for server in (servers.postgres, servers.valkey):
            shown = command_of(server.process.pid) + server.part.log.read_text() + repr(server.part)
            assert secrets.postgres not in shown
            assert secrets.valkey not in shown
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(servers.database_url.replace(secrets.postgres, "wrong")).close()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis.from_url(servers.redis_url.replace(secrets.valkey, "")).ping()


def test_valkey_evicts_nothing_and_survives_a_kill(home: Path) -> None:
    with embedded_servers(home, keep=True) as servers:
        client = redis.Redis.from_url(servers.redis_url)
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("appendonly")["appendonly"] == "yes"
        client.set("key", "value")
        assert client.execute_command("WAITAOF", 1, 0, 5000)[0] == 1  # on disk
        servers.valkey.process.kill()
        servers.valkey.process.wait()
    with embedded_servers(home, keep=True) as servers:
        assert redis.Redis.from_url(servers.redis_url).get("key") == b"value"


def test_a_server_left_on_the_data_is_stopped_first(home: Path) -> None:
    """Its supervisor was killed before it could write stack.json: only the pid file tells."""
    home.mkdir()
    left = launch(postgres_part(home, ensure_secrets(home).postgres, free_port(), fsync=False))
    wait_ready([left])
    said: list[str] = []
    part = postgres_part(home, ensure_secrets(home).postgres, free_port(), fsync=False, say=said.append)
    assert left.process.wait(10) == 0  # a fast shutdown, not a crash
    assert str(left.process.pid) in said[0]
    running = launch(part)
    try:
        wait_ready([running])
    finally:
        stop_all([running])


def test_a_crash_leaves_a_database_that_starts_again(home: Path) -> None:
    with embedded_servers(home, fsync=True, keep=True) as servers:
        write(servers, "committed")
        servers.postgres.process.kill()
        servers.postgres.process.wait()
    with embedded_servers(home, fsync=True, keep=True) as servers:
        assert read(servers) == ["committed"]


def test_a_pid_file_that_now_names_another_process_is_no_obstacle(home: Path) -> None:
    """After a reboot the old id may belong to anything; Postgres itself would refuse to start."""
    with embedded_servers(home, keep=True):
        pid_file = home / "postgres" / "data" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
    place = find_place(home)
    other = subprocess.Popen(["/bin/sleep", "600"], cwd="/", **place.run_as)
    try:
        pid_file.write_text("\n".join([str(other.pid), *lines[1:]]) + "\n")
        if place.run_as:
            os.chown(pid_file, place.run_as["user"], place.run_as["group"])
        with embedded_servers(home, keep=True) as servers, psycopg.connect(servers.database_url):
            assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_lost_passwords_are_said_and_not_waited_for(home: Path) -> None:
    with embedded_servers(home, keep=True):
        pass
    secrets_path(home).unlink()
    refused = pytest.raises(StackError, match=r"secrets\.json does not hold the password")
    with refused as caught, embedded_servers(home, keep=True):
        pytest.fail("the new password was accepted")
    assert ensure_secrets(home).postgres not in str(caught.value)


def test_an_interrupted_creation_is_begun_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    monkeypatch.setattr(
        "shared.stack.postgres.SUPERUSER", "pg_forbidden"
    )  # initdb refuses names that begin so
    with pytest.raises(StackError, match="could not be made"):
        postgres_part(home, "password", free_port())
    assert not (home / "postgres" / "data").exists()
    assert [path.name for path in (home / "postgres").iterdir() if path.name.startswith("new-")] == []
    monkeypatch.undo()
    with embedded_servers(home):
        pass


@as_root
def test_root_runs_it_as_another_user_in_the_home(open_folder: Path) -> None:
    home = open_folder / "home"
    with embedded_servers(home) as servers:
        account = pwd.getpwuid(Path(f"/proc/{servers.postgres.process.pid}").stat().st_uid)
        assert account.pw_name in ("postgres", "nobody")
        assert not (home / "postgres").is_symlink()
        assert (home / "postgres" / "data").stat().st_uid == account.pw_uid
    assert not (home / "postgres").exists()


@as_root
def test_root_below_a_closed_folder_keeps_the_data_elsewhere(home: Path, open_folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_user, "SHARED_PLACE", open_folder / "shared")
        with embedded_servers(home, keep=True) as servers:
            write(servers, "kept")
        link = home / "postgres"
        folder = link.resolve()
        assert link.is_symlink()
        assert folder.parent == open_folder / "shared"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "home").read_text().strip() == str(home)
        with embedded_servers(home) as servers:
            assert read(servers) == ["kept"]
            assert link.resolve() == folder
        assert not folder.exists()


@as_root
def test_root_with_a_closed_python_copies_the_server(
    home: Path, open_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = postgres_user.wheel_install().parent
    site = tmp_path / "site-packages"
    for folder in (package, package.with_name(package.name + ".libs")):
        if folder.is_dir():
            shutil.copytree(folder, site / folder.name, ignore=shutil.ignore_patterns("include", "*.a"))
    closed = site / package.name / "pginstall18"
    monkeypatch.setattr(postgres_user, "wheel_install", lambda: closed)
    monkeypatch.setattr(postgres_user, "SHARED_PLACE", open_folder / "shared")
    before = os.umask(0o077)  # root's habits must not close the copy
    try:
        with embedded_servers(home, keep=True) as servers:
            assert command_of(servers.postgres.process.pid).startswith(
                str(open_folder / "shared" / "pgserver-")
            )
            write(servers, "kept")
        shutil.rmtree(site)
        closed.mkdir(parents=True)  # the second start uses the copy that is there
        with embedded_servers(home) as servers:
            assert read(servers) == ["kept"]
    finally:
        os.umask(before)


@as_root
def test_a_shared_place_that_others_can_write_is_refused(home: Path, open_folder: Path) -> None:
    open_folder.chmod(0o777)
    home.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_user, "SHARED_PLACE", open_folder)
        with pytest.raises(StackError, match="writable by root only"):
            find_place(home)


@as_root
def test_a_link_to_data_that_is_gone_is_not_filled_with_a_new_database(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "postgres").symlink_to("/no/such/folder")
    with pytest.raises(StackError, match="points to /no/such/folder"):
        find_place(home)


def as_nobody(work: Callable[[], None]) -> str:
    """Run `work` in a forked child that has become the user nobody; what it raised, as text.

    Forked, not started, because nobody may not be able to read the Python that runs the tests.
    """
    account = pwd.getpwnam("nobody")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            work()
        except BaseException:  # noqa: BLE001 - all of it is the parent's to judge
            os.write(writer, traceback.format_exc().encode()[-8000:])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


@as_root
def test_an_ordinary_user(open_folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    if not postgres_user._can_run(postgres_user.wheel_install(), {"user": nobody.pw_uid, "extra_groups": []}):
        pytest.skip("the tests' Python lies below a folder closed to others")
    home = open_folder / "home"
    home.mkdir()
    os.chown(home, nobody.pw_uid, nobody.pw_gid)

    def work() -> None:
        with embedded_servers(home, keep=True) as servers:
            write(servers, "mine")
            assert Path(f"/proc/{servers.postgres.process.pid}").stat().st_uid == nobody.pw_uid
        with embedded_servers(home, keep=True) as servers:
            assert read(servers) == ["mine"]

    with embedded_servers(open_folder / "warm"):  # what is imported late cannot be imported by nobody
        pass
    assert as_nobody(work) == ""
    # root on the same home runs the server as the owner of the data
    with embedded_servers(home, keep=True) as servers:
        assert read(servers) == ["mine"]
        assert Path(f"/proc/{servers.postgres.process.pid}").stat().st_uid == nobody.pw_uid


@as_root
def test_an_ordinary_user_on_anothers_data_is_told(open_folder: Path) -> None:
    home = open_folder / "home"
    with embedded_servers(home, keep=True):
        pass
    (home / "postgres").chmod(0o755)
    os.chown(home / "postgres" / "data", 12345, 12345)
    assert "belongs to user id 12345" in as_nobody(lambda: find_place(home) and None)


def test_signals_of_the_stop_are_in_order() -> None:
    """A fast shutdown must come first: an immediate one means a recovery at the next start."""
    from shared.stack.postgres import STOPS

    assert [number for number, _ in STOPS] == [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL]


@pytest.mark.skipif(sys.platform != "linux", reason="others name the options differently")
def test_a_connection_to_a_postgres_that_has_vanished_is_given_up(servers: Servers) -> None:
    """Its host gives no answer any more: the kernel asks after ten seconds, and waits for thirty at most."""
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
    engine = make_engine(servers.database_url, pool_size=1)
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        with socket.socket(fileno=os.dup(driver.fileno())) as wire:
            asked = [wire.getsockopt(socket.IPPROTO_TCP, name) for name in names]
    engine.dispose()
    assert asked == [10, 5, 3, 30_000]
