"""The zip around a workbook: what is in it, and whether it may be unpacked at all."""

import posixpath
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from api.sheets.xml import Elements, read_part
from shared.errors import IntakeError

MAX_UNPACKED = 4 * 2**30  # bytes, all members together
MAX_RATIO = 400  # unpacked to packed; repetitive sheets reach about 100, a bomb 1,000
FREE_SIZE = 64 * 2**20  # bytes that are unpacked whatever their ratio
MAX_MEMBERS = 20_000
_RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_STRICT_RELATION = "http://purl.oclc.org/ooxml/officeDocument/relationships}id"


@dataclass(frozen=True, slots=True)
class SheetPart:
    """One worksheet of a workbook."""

    name: str
    member: str  # its path within the zip
    hidden: bool


@dataclass(slots=True)
class Package:
    """An opened workbook: its worksheets in order, and the parts that the cells need."""

    path: Path
    archive: zipfile.ZipFile
    sheets: list[SheetPart]
    strings: str | None  # the member of shared strings
    styles: str | None
    date_1904: bool

    def place(self, what: str) -> str:
        return f"{self.path}: {what}"


def check_members(archive: zipfile.ZipFile, path: Path) -> None:
    """Raises IntakeError for a zip that would unpack to too much, or that is encrypted.

    The sizes in the directory bound what is read: zipfile stops there, and the checksum then fails.
    """
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise IntakeError(f"{path}: {len(infos):,} files in one zip; at most {MAX_MEMBERS:,} are read.")
    if any(info.flag_bits & 1 for info in infos):
        raise IntakeError(f"{path}: it is protected by a password. Save it without one.")
    unpacked = sum(info.file_size for info in infos)
    packed = sum(info.compress_size for info in infos) or 1
    if unpacked > MAX_UNPACKED or (unpacked > FREE_SIZE and unpacked > MAX_RATIO * packed):
        raise IntakeError(
            f"{path}: it would unpack to {unpacked:,} bytes from {packed:,}, as a zip bomb does. It is not read; "
            "export the sheet as CSV if it is in earnest."
        )


@contextmanager
def zip_errors(path: Path) -> Iterator[None]:
    """A zip that breaks off or fails its checksum, as one error."""
    try:
        yield
    except (zipfile.BadZipFile, EOFError, NotImplementedError, zipfile.LargeZipFile) as error:
        raise IntakeError(f"{path}: the file is damaged ({error}). Download or save it again.") from None
    except RuntimeError as error:  # zipfile's way to say that a member is encrypted
        raise IntakeError(f"{path}: it cannot be unpacked ({error}). Save it without a password.") from None
    except Exception as error:
        if type(error).__module__ not in ("zlib", "lzma", "_lzma"):
            raise
        raise IntakeError(f"{path}: the file is damaged ({error}). Download or save it again.") from None


@contextmanager
def open_package(path: Path) -> Iterator[Package]:
    """The workbook at `path`. Raises IntakeError when it is none, or not one that can be read."""
    with zip_errors(path):
        archive = zipfile.ZipFile(path)
    with archive:
        with zip_errors(path):
            check_members(archive, path)
            members = set(archive.namelist())
            package = _package(archive, path, _workbook_part(archive, path, members), members)
        yield package


def _workbook_part(archive: zipfile.ZipFile, path: Path, members: set[str]) -> str:
    if "mimetype" in members and archive.read("mimetype")[:60].startswith(
        b"application/vnd.oasis.opendocument"
    ):
        raise IntakeError(f"{path}: this is an OpenDocument file. Save it as .xlsx or as CSV.")
    targets = [target for kind, target, _ in _relations(archive, path, "") if kind == "officeDocument"]
    found = next((target for target in targets if target in members), None)
    if found is None or not found.startswith("xl/"):
        what = {"word": "a Word document", "ppt": "a PowerPoint file"}
        kind = what.get((found or "").split("/")[0], "no Excel workbook")
        raise IntakeError(f"{path}: this is {kind}. Save the questions as .xlsx or as CSV.")
    if found.endswith(".bin"):
        raise IntakeError(f"{path}: this is a binary workbook (.xlsb). Save it as .xlsx.")
    return found


def _package(archive: zipfile.ZipFile, path: Path, workbook: str, members: set[str]) -> Package:
    relations = {name: (kind, target) for kind, target, name in _relations(archive, path, workbook)}
    sheets: list[SheetPart] = []
    date_1904 = False

    def found(name: str, attributes: dict[str, str]) -> None:
        nonlocal date_1904
        if name == "workbookPr":
            date_1904 = attributes.get("date1904", "0") in ("1", "true")
        elif name == "sheet":
            relation = attributes.get(_RELATION) or attributes.get(_STRICT_RELATION, "")
            kind, target = relations.get(relation, ("", ""))
            if kind == "worksheet" and target in members:
                hidden = attributes.get("state", "visible") != "visible"
                sheets.append(SheetPart(attributes.get("name", ""), target, hidden))

    with archive.open(workbook) as stream:
        read_part(stream, Elements(found), f"{path}: {workbook}")
    if not sheets:
        raise IntakeError(f"{path}: there is no sheet with cells in it.")
    parts = {kind: target for kind, target in relations.values() if target in members}
    return Package(path, archive, sheets, parts.get("sharedStrings"), parts.get("styles"), date_1904)


def _relations(archive: zipfile.ZipFile, path: Path, part: str) -> list[tuple[str, str, str]]:
    """(last word of the kind, member, id) of what `part` refers to within the zip."""
    folder, name = posixpath.split(part)
    member = posixpath.join(folder, "_rels", f"{name}.rels")
    result: list[tuple[str, str, str]] = []

    def found(element: str, attributes: dict[str, str]) -> None:
        if element == "Relationship" and attributes.get("TargetMode") != "External":
            target = attributes.get("Target", "")
            whole = target.lstrip("/") if target.startswith("/") else posixpath.join(folder, target)
            kind = attributes.get("Type", "").rpartition("/")[2]
            result.append((kind, posixpath.normpath(whole), attributes.get("Id", "")))

    try:
        stream: IO[bytes] = archive.open(member)
    except KeyError:
        return []
    with stream:
        read_part(stream, Elements(found), f"{path}: {member}")
    return result
