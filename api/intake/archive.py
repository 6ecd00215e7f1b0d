"""A zip of question files: each member by its own reader, its rows marked with its name.

Members are unpacked one at a time into a temporary folder, under names of ours, so that no path in the zip
can reach anything. Each row is an object: the file, then its cells by column.
"""

import posixpath
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from api.intake.model import InputRow, IntakeReport, QuestionFile
from api.sheets.package import check_members, zip_errors
from shared.clean import clean_text, free_name, one_line
from shared.errors import CraglineError, IntakeError, NotFound, UsageError

MAX_FILES = 1000  # that are read
_JUNK = ("__MACOSX/",)
_BESIDE = (".md", ".pdf", ".docx", ".doc", ".png", ".jpg", ".jpeg", ".html", ".htm")  # may lie beside
Opener = Callable[[Path], QuestionFile]


def open_archive(path: Path, opened: Opener) -> IntakeReport:
    """Looks at each member with `opened`. Raises IntakeError or UsageError, naming the member."""
    columns: dict[str, None] = {}
    notes: list[str] = []
    first: IntakeReport | None = None
    guessed = False
    with _open(path) as archive:
        members, aside = _members(path, archive)
        for info in members:
            with _unpacked(path, archive, info) as file, _named(path, info, file):
                report = opened(file).report
            columns |= dict.fromkeys(report.columns)
            said = " ".join(report.notes)
            notes.append(f'{_shown(info)}: questions in "{report.question_column}". {said}'.rstrip())
            first, guessed = first or report, guessed or report.column_guessed
    assert first is not None
    if aside:
        notes.append(f"Passed over: {', '.join(aside[:10])}{' and more' * (len(aside) > 10)}.")
    names = [_file_key(columns), *columns]
    return IntakeReport(
        path.name, "zip", first.encoding, None, names, names, first.question_column, guessed, notes
    )


def archive_rows(path: Path, report: IntakeReport, opened: Opener) -> Iterator[InputRow]:
    """The rows of all members, numbered through."""
    number = 0
    key = report.columns[0]
    with _open(path) as archive:
        for info in _members(path, archive)[0]:
            with _unpacked(path, archive, info) as file, _named(path, info, file):
                questions = opened(file)
                for row in questions.rows():
                    number += 1
                    yield InputRow(
                        number, row.question, _as_object(key, info, row, questions.report), row.notes
                    )


def _file_key(columns: dict[str, None]) -> str:
    return free_name("file", columns)


def _as_object(key: str, info: zipfile.ZipInfo, row: InputRow, report: IntakeReport) -> dict[str, Any]:
    result: dict[str, Any] = {key: _shown(info)}
    if isinstance(row.original, dict):
        return result | row.original
    result.update(zip(report.columns, row.original, strict=False))
    if extra := row.original[len(report.columns) :]:
        result[free_name("extra_cells", result)] = extra
    return result


@contextmanager
def _open(path: Path) -> Iterator[zipfile.ZipFile]:
    with zip_errors(path):
        archive = zipfile.ZipFile(path)
    with archive:
        check_members(archive, path)
        yield archive


def _members(path: Path, archive: zipfile.ZipFile) -> tuple[list[zipfile.ZipInfo], list[str]]:
    """The files of questions by name, and the names of what is passed over."""
    found: list[zipfile.ZipInfo] = []
    aside: list[str] = []
    for info in archive.infolist():
        name = info.filename
        base = posixpath.basename(name)
        if info.is_dir() or name.startswith(_JUNK) or base.startswith((".", "~$")) or not base:
            continue
        suffix = Path(base).suffix.lower()
        if suffix == ".zip":
            raise IntakeError(
                f"{path}: {_shown(info)} is a zip within the zip. Unpack it, or submit it alone."
            )
        if suffix in _BESIDE or (suffix == ".txt" and base.lower().startswith(("readme", "license"))):
            aside.append(_shown(info))
        else:
            found.append(info)
    if not found:
        raise IntakeError(f"{path}: there is no file of questions in the zip.")
    if len(found) > MAX_FILES:
        raise IntakeError(f"{path}: {len(found):,} files in the zip; at most {MAX_FILES:,} are read.")
    return sorted(found, key=lambda info: info.filename), aside


def _shown(info: zipfile.ZipInfo) -> str:
    return one_line(clean_text(info.filename), 200)


@contextmanager
def _unpacked(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cragline-") as folder:
        file = Path(folder) / f"member{Path(info.filename).suffix.lower()}"
        with zip_errors(path), archive.open(info) as packed, file.open("wb") as out:
            shutil.copyfileobj(packed, out, 2**20)
        yield file


@contextmanager
def _named(path: Path, info: zipfile.ZipInfo, file: Path) -> Iterator[None]:
    """Errors name the member, not the temporary file."""
    try:
        yield
    except (IntakeError, UsageError, NotFound) as error:
        raise _renamed(error, str(file), f"{path}, {_shown(info)}") from None


def _renamed(error: CraglineError, old: str, new: str) -> CraglineError:
    return type(error)(str(error).replace(old, new))
