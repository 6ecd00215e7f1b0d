"""Files that appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TextIO

from shared.errors import CraglineError


@contextmanager
def atomic_text(path: Path, *, encoding: str = "utf-8") -> Iterator[TextIO]:
    """`atomic_binary` for text; newlines are not translated."""
    with atomic_binary(path) as out:
        text = TextIOWrapper(out, encoding=encoding, newline="")
        try:
            yield text
            text.flush()
        finally:
            text.detach()


@contextmanager
def atomic_binary(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under `path` only when the block ends well.

    It is written beside its place, because a move is atomic only within one file system. Something that is
    no ordinary file (/dev/stdout, a pipe) is written directly. Raises CraglineError for errors of writing.
    """
    try:
        if path.is_dir():
            raise CraglineError(f"{path}: this is a folder. Name a file.")
        if not path.parent.is_dir():
            raise CraglineError(f"{path}: there is no folder {path.parent}. Create it first.")
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                yield out
            return
        with _replacing(path.resolve()) as out:  # a link is kept, and what it points to replaced
            yield out
    except OSError as error:
        raise CraglineError(f"{path}: cannot be written ({error.strerror or error}).") from error


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    temporary = target.with_name(f".cragline-{secrets.token_hex(8)}.tmp")
    try:
        # "x" obeys the umask, as an ordinary file does; the tempfile module would make it private.
        with temporary.open("x+b") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
