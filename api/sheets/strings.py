"""The shared strings of a workbook and its styles.

Excel writes every text of a workbook into one list, which the cells refer to by number. The list may be as
large as the workbook, so it is kept in a temporary file, with only the offsets in memory.
"""

import mmap
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager

from api.sheets.package import Package, zip_errors
from api.sheets.values import Shown, natural, shown_by, unescape
from api.sheets.xml import Elements, Target, feed, read_part
from shared.clean import MAX_TEXT
from shared.errors import IntakeError


class Strings:
    """The shared strings by their index."""

    def __init__(self, data: mmap.mmap | bytes, ends: "array[int]") -> None:
        self._data = data
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        start = self._ends[index - 1] if index else 0
        return bytes(self._data[start : self._ends[index]]).decode()


class _Collector(Target):
    """Gathers the text of one string: its runs joined, the reading aids of East Asian text left out."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.done: list[bytes] = []
        self._parts: list[str] = []
        self._size = 0
        self._inside = self._phonetic = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "si":
            self._parts, self._size = [], 0
        elif name == "t":
            self._inside = not self._phonetic
        elif name == "rPh":
            self._phonetic = True

    def end(self, name: str) -> None:
        if name == "t":
            self._inside = False
        elif name == "rPh":
            self._phonetic = False
        elif name == "si":
            self.done.append(unescape("".join(self._parts)).encode())

    def text(self, data: str) -> None:
        if self._inside:
            self._parts.append(data)
            self._size += len(data)
            if self._size > MAX_TEXT:
                raise IntakeError(f"{self._place}: a text of more than {MAX_TEXT:,} characters.")


@contextmanager
def open_strings(package: Package) -> Iterator[Strings]:
    """The shared strings of `package`; none when it has no such part."""
    ends: array[int] = array("Q")
    if package.strings is None:
        yield Strings(b"", ends)
        return
    place = package.place(package.strings)
    collector = _Collector(place)
    size = 0
    with tempfile.TemporaryFile(prefix="cragline-") as kept:
        with zip_errors(package.path), package.archive.open(package.strings) as stream:
            for _ in feed(stream, collector, place):
                for data in collector.done:
                    size += len(data)
                    ends.append(size)
                kept.writelines(collector.done)
                collector.done.clear()
        kept.flush()
        if not size:  # nothing can be mapped of an empty file
            yield Strings(b"", ends)
            return
        with mmap.mmap(kept.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield Strings(mapped, ends)


def number_formats(package: Package) -> list[Shown]:
    """How each cell style (the attribute `s` of a cell) shows a number."""
    if package.styles is None:
        return []
    formats: dict[int, str] = {}
    styles: list[int] = []
    inside = False

    def found(name: str, attributes: dict[str, str]) -> None:
        nonlocal inside
        number = natural(attributes.get("numFmtId"))
        if name == "numFmt" and number is not None:
            formats[number] = attributes.get("formatCode", "")
        elif name in ("cellXfs", "cellStyleXfs", "dxfs", "cellStyles"):
            inside = name == "cellXfs"
        elif name == "xf" and inside:
            styles.append(number or 0)

    with zip_errors(package.path), package.archive.open(package.styles) as stream:
        read_part(stream, Elements(found), package.place(package.styles))
    return [shown_by(number, formats) for number in styles]
