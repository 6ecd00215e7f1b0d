"""Files that are not text, told by their first bytes, each with the way out."""

import re
from pathlib import Path

from shared.errors import IntakeError

_EXPORT = 'Open it and export the sheet as "CSV UTF-8".'
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (_OLE, "an old Excel or Word file", _EXPORT),
    (b"%PDF-", "a PDF", "Copy the questions into a CSV or text file."),
    (b"\x89PNG", "a PNG image", "Give a file of text."),
    (b"\xff\xd8\xff", "a JPEG image", "Give a file of text."),
    (b"GIF8", "a GIF image", "Give a file of text."),
    (b"\x1f\x8b", "gzip-compressed", "Unpack it first."),
    (b"BZh", "bzip2-compressed", "Unpack it first."),
    (b"\xfd7zXZ\x00", "xz-compressed", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "Unpack it first."),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "Unpack it first."),
    (b"SQLite format 3\x00", "a SQLite database", "Export the table as CSV."),
    (b"PAR1", "a Parquet file", "Export it as CSV or JSONL."),
    (b"\x7fELF", "a program", "Give a file of text."),
    (b"{\\rtf", "a rich text (RTF) document", "Save it as plain text."),
)
_PAGE = re.compile(rb"\s*<(!doctype html|html|\?xml)", re.IGNORECASE)
_CONTROLS = bytes(byte for byte in range(0x20) if byte not in b"\t\n\v\f\r") + b"\x7f"


def refuse_other_formats(path: Path, head: bytes) -> None:
    """Raises IntakeError when `head`, the file's first bytes, shows a format that is not text."""
    if head.startswith(b"PK\x03\x04"):
        if b"[Content_Types].xml" in head or b"xl/" in head:
            raise IntakeError(
                f"{path}: this is an Excel or other Office file, whatever its name says. If it is a workbook, "
                f"name it .xlsx. Or: {_EXPORT[0].lower()}{_EXPORT[1:]}"
            )
        raise IntakeError(f"{path}: this is a zip archive. Unpack it first, or name it .zip.")
    for signature, what, remedy in _SIGNATURES:
        if head.startswith(signature):
            raise IntakeError(f"{path}: this is {what}, not a file of questions. {remedy}")
    if _PAGE.match(head.removeprefix(b"\xef\xbb\xbf")):
        raise IntakeError(
            f"{path}: this is a web page or XML, perhaps a login page, and no table. Download it again."
        )


def refuse_sheets(path: Path) -> None:
    """Raises IntakeError when the file at `path`, a workbook by its name, is not the zip that one is."""
    with path.open("rb") as file:
        head = file.read(2**16)
        if head.startswith(_OLE):  # its directory may stand anywhere in the file
            head += file.read(2**24)
    if head.startswith(b"PK\x03\x04"):
        return
    if not head:
        raise IntakeError(f"{path}: the file is empty. It needs at least one question.")
    if head.startswith(_OLE):
        if "EncryptedPackage".encode("utf-16-le") in head:
            raise IntakeError(
                f"{path}: the workbook is protected by a password. Save it without one (Excel: File, Info, "
                "Protect Workbook, Encrypt with Password, and empty the field)."
            )
        raise IntakeError(
            f"{path}: this is a workbook of Excel 97-2003 (.xls). Open it and save it as .xlsx, or as CSV."
        )
    refuse_other_formats(path, head)
    raise IntakeError(
        f"{path}: this is no Excel workbook, whatever its name says. If it is text, name it .csv or .txt."
    )


def control_share(head: bytes) -> float:
    """The share of control bytes other than white space."""
    return (len(head) - len(head.translate(None, _CONTROLS))) / max(len(head), 1)
