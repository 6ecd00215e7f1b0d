"""Repositories: a shallow fetch through the git command, or a checkout at hand, read from git's objects.

Nothing is checked out: files are read as objects of one commit. So no hook, filter or submodule runs, no
symbolic link is followed, and no name in the repository can leave the folder. The repository's own
configuration is hostile too (`core.fsmonitor` names a program), so what could run something is overruled.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from shared.addresses import Resolver, checked_addresses, resolve
from shared.clean import clean_text, one_line
from shared.urls import checked_url, shown
from workers.stores.loaders.base import LoadError

MAX_REPOSITORY = 500 * 1024 * 1024  # bytes of what is fetched
FETCH_SECONDS = 300.0
_LOOK_SECONDS = 0.2
_ORDINARY = ("100644", "100755")  # modes; the others are links and submodules
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}")
_PINNING = (2, 37)  # the first git that takes `http.curloptResolve`

_OVERRULED = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.symlinks": "false",
    "credential.helper": "",
    "http.followRedirects": "false",
    "protocol.ext.allow": "never",
    "safe.directory": "*",  # the folder was named by a person; nothing in it is run
    "transfer.fsckObjects": "true",
}


@dataclass(frozen=True)
class Entry:
    """An ordinary file of a commit. `path` has slashes; `size` is in bytes."""

    path: str
    oid: str
    size: int


class Repository:
    """One commit of a repository on this machine. `name` is what its files are cited by."""

    def __init__(self, folder: Path, name: str, revision: str) -> None:
        self._folder = folder
        self.name = name
        self.commit = _git(
            folder, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}"
        ).strip()

    def entries(self, notes: list[str]) -> list[Entry]:
        """The ordinary files of the commit, in git's order."""
        listed = _git(self._folder, "ls-tree", "-r", "-z", "-l", "--full-tree", self.commit)
        found, odd = [], 0
        for line in filter(None, listed.split("\0")):
            facts, _, path = line.partition("\t")
            mode, _, oid, size = facts.split()
            if mode not in _ORDINARY or not size.isdecimal() or clean_text(path) != path:
                odd += 1
                continue
            found.append(Entry(path, oid, int(size)))
        if odd:
            notes.append(f"{odd} links, submodules or files with names that are not UTF-8 were left out")
        return found

    @contextmanager
    def reader(self) -> Iterator["Reader"]:
        with _process(self._folder, "cat-file", "--batch") as process:
            yield Reader(process)


class Reader:
    """Hands out the contents of files, one after the other, from a single git process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[bytes] = process.stdin
        self._out: IO[bytes] = process.stdout

    def read(self, entry: Entry) -> bytes:
        """The bytes of a file. Raises LoadError when git does not have them."""
        self._in.write(f"{entry.oid}\n".encode())
        self._in.flush()
        head = self._out.readline().split()
        if len(head) != 3:
            raise LoadError(f"{entry.path}: its content is not in the repository here.")
        content = self._out.read(int(head[2]))
        self._out.read(1)  # the line end behind it
        return content


@contextmanager
def opened(
    source: str, *, allow_private: bool, allow_file: bool = False, resolver: Resolver = resolve
) -> Iterator[Repository]:
    """The repository at `source`: `git+https://host/path[@ref]`, or the folder of a checkout (its HEAD).

    A remote one is fetched into a temporary folder, which is removed again. Raises LoadError, FetchError.
    """
    if not source.startswith("git+"):
        try:
            yield Repository(Path(source), source, "HEAD")
        except FileNotFoundError:
            raise LoadError(
                f"{source}: the checkout is not there (the worker must see the same files)."
            ) from None
        return
    url, ref = split_ref(source.removeprefix("git+"))
    with tempfile.TemporaryDirectory(prefix="cragline-git-", ignore_cleanup_errors=True) as folder:
        _fetch(Path(folder), url, ref, allow_private, allow_file, resolver)
        yield Repository(Path(folder), url, "FETCH_HEAD")


def split_ref(url: str) -> tuple[str, str]:
    """`https://host/repo@v1` as URL and ref; without one the ref is HEAD. Raises LoadError."""
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    path, at, ref = path.partition("@")
    if at and not (_REF.fullmatch(ref) and ".." not in ref):
        raise LoadError(f"{shown(url)}: what stands behind the @ is no name of a branch, tag or commit.")
    return f"{scheme}://{place}{slash}{path}", ref or "HEAD"


def _fetch(
    folder: Path, url: str, ref: str, allow_private: bool, allow_file: bool, resolver: Resolver
) -> None:
    pinned: list[str] = []
    if url.startswith("file://") and allow_file:
        protocol = "file"
    else:
        url = checked_url(url)
        protocol = "https"
        if not url.startswith("https://"):
            raise LoadError(f"{shown(url)}: repositories are fetched from https:// only.")
        pinned = _pinned(url, allow_private, resolver)
    _git(folder, "init", "--quiet", "--template=", ".")
    words = ["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-auto-maintenance"]
    command = [*_command(folder, pinned), *words, "--", url, ref]
    with (folder / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=_environment(folder, protocol),
            start_new_session=True,  # so that git's helpers can be ended with it
        )
        reason = _watched(process, folder)
    if reason:
        raise LoadError(f"{shown(url)}: {reason}")
    if process.returncode:
        words_said = (folder / "said.txt").read_text("utf-8", "replace").strip().splitlines()
        last = one_line(clean_text(words_said[-1] if words_said else ""), 200)
        raise LoadError(f"{shown(url)}: git could not fetch {ref!r} ({last}).")


def _pinned(url: str, allow_private: bool, resolver: Resolver) -> list[str]:
    """Settings by which git connects to the addresses that were checked, and asks no resolver again."""
    if _version() < _PINNING:
        raise LoadError(
            "git is older than 2.37 and cannot be told which address to use; install a newer one."
        )
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    addresses = checked_addresses(host, port, allow_private=allow_private, resolver=resolver)
    listed = ",".join(f"[{one}]" if ":" in one else one for one in addresses)
    return [f"http.curloptResolve={host}:{port}:{listed}"]


def _watched(process: "subprocess.Popen[bytes]", folder: Path) -> str | None:
    """Wait for the end; a reason when it had to be ended for its time or its size."""
    deadline = time.monotonic() + FETCH_SECONDS
    reason = None
    try:
        while process.poll() is None and reason is None:
            if time.monotonic() > deadline:
                reason = f"not fetched within {FETCH_SECONDS:.0f} s."
            elif _bytes_in(folder) > MAX_REPOSITORY:
                reason = f"more than the {MAX_REPOSITORY / 1e6:.0f} MB that a repository may have."
            else:
                time.sleep(_LOOK_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if reason is None and _bytes_in(folder) > MAX_REPOSITORY:
        reason = f"more than the {MAX_REPOSITORY / 1e6:.0f} MB that a repository may have."
    return reason


def _bytes_in(folder: Path) -> int:
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(where, name)).st_size
            except OSError:  # a temporary file of git's that has just gone
                continue
    return total


def _command(folder: Path, settings: list[str] | None = None) -> list[str]:
    command = ["git", "-C", str(folder)]
    for setting in [*(f"{name}={value}" for name, value in _OVERRULED.items()), *(settings or [])]:
        command += ["-c", setting]
    return command


def _environment(folder: Path, protocol: str = "none") -> dict[str, str]:
    """Nothing of the worker's own environment but the search path: no key, no proxy, no configuration."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ALLOW_PROTOCOL": protocol,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }


def _git(folder: Path, *words: str) -> str:
    """What a git command prints. Raises LoadError."""
    try:
        done = subprocess.run(
            [*_command(folder), *words],
            capture_output=True,
            env=_environment(folder),
            timeout=60,
            check=False,
        )
    except FileNotFoundError:
        raise LoadError("git is not installed where the worker runs; repositories need it.") from None
    except subprocess.TimeoutExpired:
        raise LoadError(f"{folder}: git took more than a minute ({words[0]}).") from None
    if done.returncode:
        last = one_line(clean_text(done.stderr.decode("utf-8", "replace").strip()), 200)
        raise LoadError(f"{folder}: git could not read the repository ({last or words[0]}).")
    return done.stdout.decode("utf-8", "surrogateescape")


@contextmanager
def _process(folder: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [*_command(folder), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(folder),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _version() -> tuple[int, int]:
    try:
        command = ["git", "--version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        raise LoadError("git is not installed where the worker runs; repositories need it.") from None
    found = re.search(r"(\d+)\.(\d+)", said.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)
