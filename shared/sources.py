"""What `cragline ingest` was given, as pieces of work: files, sites, repositories, folders to prune."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shared.clean import needs_cleaning
from shared.errors import CraglineError, NotFound, UsageError
from shared.globs import wanted
from shared.statuses import WorkKind
from shared.urls import FetchError, checked_url, shown

SUFFIXES = frozenset({".txt", ".md", ".html", ".htm", ".pdf", ".docx", ".jsonl", ".csv"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SSH = re.compile(r"[\w.-]+@[\w.-]+:")


_BY_PRODUCTS = frozenset({".pyc", ".pyo"})  # not worth naming among what was left out


class CannotIngest(CraglineError):
    """A named path holds nothing that can be ingested."""


@dataclass(frozen=True)
class Options:
    """How sources are read; what does not concern a kind is not looked at."""

    include: tuple[str, ...] = ()  # globs of files in folders and repositories
    exclude: tuple[str, ...] = ()
    depth: int = 0  # links followed from a page, within its host
    sitemap: bool = False
    max_pages: int = 100
    allow_private: bool = False  # addresses of one's own network may be fetched
    prune: bool = False  # remove documents whose source is gone


@dataclass(frozen=True)
class Work:
    """One row of `ingest_files`."""

    kind: WorkKind
    path: str
    options: dict[str, Any] | None = None


def plan_work(sources: Sequence[Path | str], options: Options) -> tuple[list[Work], Counter[str]]:
    """The work on `sources`, each source once; and what was left out of the folders, by reason.

    Raises UsageError for a URL that is refused, and what `expand` raises.
    """
    skipped: Counter[str] = Counter()
    work: dict[tuple[str, str], Work] = {}
    for source in sources:
        for one in _works(source, options, skipped):
            work.setdefault((one.kind, one.path), one)
    return list(work.values()), skipped


def _works(source: Path | str, options: Options, skipped: Counter[str]) -> Iterator[Work]:
    text = str(source)
    given: dict[str, Any] = asdict(options)
    if isinstance(source, str) and (_SCHEME.match(text) or _SSH.match(text)) and not os.path.lexists(text):
        yield _remote(text, options, given)
        return
    folder = Path(os.path.abspath(Path(source).expanduser()))
    if (folder / ".git").exists() and not needs_cleaning(str(folder)):
        yield Work(WorkKind.REPOSITORY, str(folder), given)
        return
    files, left_out = expand([Path(source)], options)
    skipped.update(left_out)
    for file in files:
        yield Work(WorkKind.FILE, str(file))
    if options.prune and folder.is_dir():
        yield Work(WorkKind.PRUNE, str(folder))


def _remote(text: str, options: Options, given: dict[str, Any]) -> Work:
    try:
        if text.lower().startswith("git+https://"):
            return Work(WorkKind.REPOSITORY, "git+" + checked_url(text[4:]), given)
        if text.startswith("git+file://") and options.allow_private:
            return Work(WorkKind.REPOSITORY, text, given)
        if text.lower().startswith(("http://", "https://")):
            return Work(WorkKind.SITE, checked_url(text), given)
    except FetchError as error:
        raise UsageError(str(error)) from None
    raise UsageError(
        f"{shown(text)}: pages are given as https://..., repositories as git+https://host/path or as the "
        "folder of a checkout."
    )


def expand(paths: Sequence[Path], options: Options | None = None) -> tuple[list[Path], Counter[str]]:
    """The files to ingest, absolute, each once, in a stable order; and what was left out, by reason.

    The globs of `options` choose among the files of folders. Hidden files and folders are left out. Links
    to folders are not followed, which also keeps loops out. What a program made and nobody wrote
    (`__pycache__`) is passed over in silence.
    Raises NotFound for a path that does not exist, CannotIngest for a named one that is of no use.
    """
    files: dict[Path, None] = {}
    skipped: Counter[str] = Counter()
    prune = options is not None and options.prune
    for path in paths:
        absolute = Path(os.path.abspath(path.expanduser()))
        if absolute.is_dir():
            for found in _walk(absolute, skipped):
                if options and not wanted(
                    found.relative_to(absolute).as_posix(), options.include, options.exclude
                ):
                    skipped["by --include and --exclude"] += 1
                    continue
                files[found] = None
            continue
        if not absolute.exists():
            hint = " --prune looks through folders that exist: give the one it was in." if prune else ""
            raise NotFound(f"{path}: no such file or folder.{hint}")
        if not absolute.is_file():
            raise CannotIngest(f"{path}: neither a file nor a folder.")
        if absolute.suffix.lower() not in SUFFIXES:
            known = " ".join(sorted(SUFFIXES))
            raise CannotIngest(f"{path}: this kind of file cannot be ingested; these can: {known}")
        if needs_cleaning(str(absolute)):
            raise CannotIngest(f"{str(path)!r}: the name is not valid UTF-8; rename the file.")
        files[absolute] = None
    return list(files), skipped


def _walk(folder: Path, skipped: Counter[str]) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(names):
            path = Path(where) / name
            if name.startswith("."):
                skipped["hidden"] += 1
            elif path.suffix.lower() in _BY_PRODUCTS:
                continue
            elif path.suffix.lower() not in SUFFIXES:
                skipped[path.suffix.lower() or "no suffix"] += 1
            elif needs_cleaning(str(path)):
                skipped["name not UTF-8"] += 1
            elif not path.is_file():  # a dead link, a pipe, a socket
                skipped["not a file"] += 1
            else:
                yield path
