"""Who has the local folder, and how the others ask."""

import json
import multiprocessing
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from shared.errors import DimensionMismatch, NotFound, PermanentError, StackError, TransientError
from shared.settings import Settings
from tests.unit.workers.stores.test_qdrant import chunk, vector
from workers.stores import owner_service
from workers.stores.local_owner import open_store, own_store
from workers.stores.owner_service import OwnerClient
from workers.stores.qdrant import VectorStore

_SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", _env_file=None)


def _own(home: Path, own: bool, pipe: Connection) -> None:
    """Runs in another process: opens the store, fills it, and waits to be told to end."""
    store = open_store(Settings(home=home, _env_file=None), own)
    if isinstance(store, VectorStore):
        store.ensure_collection("docs", 8)
        store.upsert(
            "docs", [chunk(number) for number in range(10)], [vector(number) for number in range(10)]
        )
    pipe.send(os.getpid())
    pipe.recv()
    store.close()


@contextmanager
def holder(
    settings: Settings, own: bool = True
) -> Iterator[tuple[multiprocessing.process.BaseProcess, Connection]]:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_own, args=(settings.home, own, theirs), daemon=True)
    process.start()
    assert ours.poll(60)
    assert ours.recv() == process.pid
    try:
        yield process, ours
    finally:
        if process.is_alive():
            ours.send("end")
        process.join(20)
        assert not process.is_alive()


def test_another_process_searches_through_the_owner(settings: Settings) -> None:
    with holder(settings) as (process, _):
        address = settings.home / "qdrant-owner.json"
        assert stat.S_IMODE(address.stat().st_mode) == 0o600
        assert json.loads(address.read_text())["pid"] == process.pid
        store = open_store(settings, own=False)
        assert isinstance(store, OwnerClient)
        found = store.search("docs", vector(4), 3)
        assert [len(found), found[0]["text"], found[0]["id"]] == [3, "passage number 4", chunk(4).id]
        assert found[0]["score"] == pytest.approx(1.0, abs=1e-5)
        by_words = store.search("docs", [], 3, text="number 7 " + "\ud800" * 50_000, mode="sparse")
        assert by_words[0]["id"] == chunk(7).id
        both = store.search("docs", vector(4), 3, text="number 7", mode="hybrid")
        assert {one["id"] for one in both} >= {chunk(4).id, chunk(7).id}
        only = store.search("docs", vector(4), 3, filters={"source": ["/d/a.txt#2", "/d/a.txt#3"]})
        assert {one["id"] for one in only} == {chunk(2).id, chunk(3).id}
        assert store.count("docs") == 10
        assert store.dimension_of("docs") == 8
        assert store.dimension_of("other") is None
        many = [chunk(3).id, *(chunk(number).id for number in range(100, 200))] * 60
        assert store.existing_ids("docs", many) == {chunk(3).id}
        with pytest.raises(NotFound, match="--collection other"):
            store.search("other", vector(1), 1)
        with pytest.raises(DimensionMismatch, match="makes 5"):
            store.search("docs", vector(1, 5), 1)
        store.close()
    assert not address.exists()


def test_a_second_owner_is_refused_and_told_who_it_is(settings: Settings) -> None:
    with (
        holder(settings) as (process, _),
        pytest.raises(StackError, match=f"in use by process {process.pid}"),
    ):
        own_store(settings)


def test_a_killed_owner_leaves_the_folder_free(settings: Settings) -> None:
    with holder(settings) as (process, _):
        process.kill()
        process.join(20)
    assert (settings.home / "qdrant-owner.json").exists()
    guest = open_store(settings, own=False)
    assert isinstance(guest, VectorStore)
    assert guest.count("docs") == 10
    guest.close()
    assert not (settings.home / "qdrant-owner.json").exists()


def test_without_an_owner_the_folder_is_opened_for_the_time_being(settings: Settings) -> None:
    own_store(settings).close()
    guest = open_store(settings, own=False)
    assert isinstance(guest, VectorStore)
    assert not (settings.home / "qdrant-owner.json").exists()
    with pytest.raises(StackError, match="in use by process"):
        open_store(settings, own=False, patience=0.2)
    guest.close()


def test_an_owner_waits_for_a_guest_to_leave(settings: Settings) -> None:
    guest = open_store(settings, own=False)
    timer = threading.Timer(0.5, guest.close)
    timer.start()
    owner = own_store(settings)
    assert (settings.home / "qdrant-owner.json").exists()
    owner.close()
    timer.join()


def test_an_owner_does_not_wait_for_ever(settings: Settings) -> None:
    guest = open_store(settings, own=False)
    with pytest.raises(StackError, match=str(os.getpid())):
        own_store(settings, patience=0.3)
    guest.close()


def test_a_folder_that_cannot_be_opened_frees_the_lock(settings: Settings) -> None:
    folder = settings.home / "qdrant"
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text("{broken")
    for _ in range(2):
        with pytest.raises(StackError, match="cannot be opened"):
            own_store(settings, patience=0.3)


def test_the_folder_is_closed_to_other_users(settings: Settings) -> None:
    own_store(settings).close()
    assert stat.S_IMODE((settings.home / "qdrant").stat().st_mode) == 0o700


@pytest.fixture
def owner(settings: Settings) -> Iterator[tuple[int, str]]:
    store = own_store(settings)
    store.ensure_collection("docs", 8)
    found = json.loads((settings.home / "qdrant-owner.json").read_text())
    yield found["port"], found["token"]
    store.close()


def talk(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer


@pytest.mark.parametrize(
    "data",
    [
        b'{"op": "count", "name": "docs"}\n',
        b'{"token": "wrong", "op": "count", "name": "docs"}\n',
        b'{"token": null, "op": "count", "name": "docs"}\n',
        b'{"token": "\\ud800", "op": "count"}\n',
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"[1]\n",
        b"[" * 100_000 + b"\n",
        b"",
    ],
)
def test_without_the_token_there_is_no_answer(owner: tuple[int, str], data: bytes) -> None:
    port, token = owner
    assert talk(port, data) == b""
    assert OwnerClient(port, token).count("docs") == 0  # and the service goes on


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "delete", "name": "docs", "ids": []},
        {"op": "__class__", "name": "docs"},
        {"op": "search", "name": "docs"},
        {"op": "search", "name": "docs", "vector": "abc", "k": 1},
        {"op": "search", "name": "docs", "vector": [1] * 8, "k": "many"},
        {"op": "search", "name": "docs", "vector": [1] * 8, "k": 1, "text": "", "mode": "odd", "filters": {}},
        {
            "op": "search",
            "name": "docs",
            "vector": [1] * 8,
            "k": 1,
            "text": "",
            "mode": "dense",
            "filters": [1],
        },
        {
            "op": "search",
            "name": "docs",
            "vector": [],
            "k": 1,
            "text": "",
            "mode": [],
            "filters": {"page": ["x"]},
        },
        {"op": "existing_ids", "name": "docs", "ids": 5},
        {},
    ],
)
def test_nonsense_with_the_token_is_answered_with_an_error(
    owner: tuple[int, str], request_: dict[str, object]
) -> None:
    port, token = owner
    answer = json.loads(talk(port, json.dumps({"token": token, **request_}).encode() + b"\n"))
    assert set(answer) == {"error"}
    assert OwnerClient(port, token).count("docs") == 0


def test_messages_are_bounded(owner: tuple[int, str], monkeypatch: pytest.MonkeyPatch) -> None:
    port, token = owner
    monkeypatch.setattr(owner_service, "MAX_REQUEST", 1000)
    assert (
        talk(port, json.dumps({"token": token, "name": "docs", "op": "count", "pad": "x" * 2000}).encode())
        == b""
    )
    with pytest.raises(PermanentError, match="too big"):
        OwnerClient(port, token).search("docs", vector(1, 500), 1)


def test_an_owner_that_is_gone_or_silent_is_a_passing_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_service, "TIMEOUT", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(TransientError) as caught:
            OwnerClient(silent.getsockname()[1], "t").count("docs")
        assert caught.value.code == "store_unreachable"
        silent.listen()
        with pytest.raises(TransientError):
            OwnerClient(silent.getsockname()[1], "t").count("docs")


def test_idle_connections_do_not_keep_others_out(
    owner: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, token = owner
    monkeypatch.setattr(owner_service._Handler, "timeout", 0.3)
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(owner_service.MAX_CONNECTIONS)]
    deadline = time.monotonic() + 20
    while True:
        try:
            assert OwnerClient(port, token).count("docs") == 0
            break
        except TransientError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    for connection in idle:
        connection.close()
