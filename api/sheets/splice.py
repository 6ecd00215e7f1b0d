"""Writes cells into the bytes of a sheet: every byte that is no new cell stays as it is.

Beside the cells themselves only three hints of the sheet change, because programs go by them: `dimension`,
the `spans` of a row that gets cells, and the widths (`cols`) of the new columns.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import IO
from xml.sax.saxutils import escape

from api.sheets.values import MAX_COLUMNS, area, letters, natural, position
from api.sheets.xml import Target, feed
from shared.errors import IntakeError

_SPANS = re.compile(rb"""(\sspans=["'])(\d+):(\d+)(["'])""")
_REF = re.compile(rb"""(\sref=["'])([^"']*)(["'])""")
_LIMIT = {name: re.compile(rb"(\s" + name.encode() + rb"""=["'])(\d+)(["'])""") for name in ("min", "max")}
_ESCAPE_LIKE = re.compile("_(?=x[0-9A-Fa-f]{4}_)")
Value = str | int
# What to write into a row: values by column. Called once for each row of the sheet, in order.
Cells = Callable[[int], Mapping[int, Value]]


class Splicer(Target):
    """Copies a sheet to `out`, with the cells that `cells` asks for.

    A new cell takes its looks from the cell of the same row in column `like`; one that stands there already,
    without content, keeps its own.
    """

    def __init__(
        self, out: IO[bytes], cells: Cells, *, like: int, widths: Mapping[int, int], place: str
    ) -> None:
        self._out, self._cells, self._like, self._widths, self._place = out, cells, like, widths, place
        self._raw = bytearray()
        self._base = 0  # offset in the sheet of the first byte of `_raw`
        self._row = self._column = 0
        self._found: list[tuple[int, int, int, bytes]] = []  # (column, start, end, style) within the row
        self._started: tuple[int, int, bytes] | None = None
        self._columns: list[bytes] | None = None  # the tags within `cols`, once it has begun
        self._inside = False  # sheetData
        self._empty = self._empty_row = False  # the cell, the row is one tag: <c/>
        self.written = 0

    def run(self, stream: IO[bytes]) -> Iterator[None]:
        """Copies all of `stream`, a chunk at a step."""
        for chunk in feed(stream, self, self._place):
            self._raw += chunk
            yield
        self._copy_to(self._base + len(self._raw))

    def start(self, name: str, attributes: dict[str, str]) -> None:
        here = self.parser.CurrentByteIndex
        if name == "c":
            found = position(attributes.get("r", ""))
            self._column = found[1] if found else self._column + 1
            self._started = (self._column, here, attributes.get("s", "").encode())
            self._empty = self._tag(here).endswith(b"/>")
        elif name == "row":
            self._row = natural(attributes.get("r")) or self._row + 1
            self._column, self._found = 0, []
            self._copy_to(here)
            self._empty_row = self._tag(here).endswith(b"/>")
        elif name == "dimension":
            self._replace(here, self._widened)
        elif name == "cols" and self._widths:
            self._copy_to(here)
            if self._tag(here).endswith(b"/>"):  # none of them, which is against the rules
                self._skip_to(self._end(here))
            else:
                self._copy_to(self._end(here))
                self._columns = []
        elif name == "col" and self._columns is not None:
            self._columns.append(self._tag(here))
        elif name == "sheetData":
            self._copy_to(here)
            if self._columns is None and self._widths:
                prefix = self._prefix(here)
                self._put(b"<%bcols>" % prefix, *self._own_columns(prefix), b"</%bcols>" % prefix)
            self._inside = True

    def end(self, name: str) -> None:
        here = self.parser.CurrentByteIndex
        if name == "c" and self._started is not None:
            column, start, style = self._started
            # Of <c/>, the end is told at the byte after it.
            self._found.append((column, start, here if self._empty else self._end(here), style))
            self._started = None
        elif name == "row":
            if cells := self._cells(self._row):
                self._write_row(cells)
            if not self._empty_row:
                self._copy_to(self._end(here))
        elif name == "cols" and self._columns is not None:
            self._skip_to(here)
            self._write_columns(self._prefix(here))
        elif name == "sheetData":
            self._inside = False
        elif not self._inside and name != "col":
            self._copy_to(here)

    # -- the bytes -----------------------------------------------------------------------------------------
    def _slice(self, start: int, end: int) -> bytes:
        return bytes(self._raw[start - self._base : end - self._base])

    def _copy_to(self, offset: int) -> None:
        if offset > self._base:
            self._out.write(self._raw[: offset - self._base])
            self._skip_to(offset)

    def _skip_to(self, offset: int) -> None:
        if offset > self._base:
            del self._raw[: offset - self._base]
            self._base = offset

    def _put(self, *parts: bytes) -> None:
        for part in parts:
            self._out.write(part)

    def _end(self, start: int) -> int:
        """The offset after the tag that begins at `start`; ">" may stand within its quotation marks."""
        place, quote = start - self._base, 0
        while place < len(self._raw):
            byte = self._raw[place]
            if quote:
                quote = 0 if byte == quote else quote
            elif byte in b"\"'":
                quote = byte
            elif byte == ord(">"):
                return self._base + place + 1
            place += 1
        raise IntakeError(f"{self._place}: a tag that does not end.")

    def _tag(self, start: int) -> bytes:
        return self._slice(start, self._end(start))

    def _prefix(self, start: int) -> bytes:
        """The namespace prefix of the tag at `start`, with its colon; mostly empty."""
        name = re.match(rb"</?([^\s/>]*)", self._tag(start))
        before, colon, _ = (name[1] if name else b"").rpartition(b":")
        return before + colon

    def _replace(self, start: int, change: Callable[[bytes], bytes]) -> None:
        self._copy_to(start)
        end = self._end(start)
        tag = self._slice(start, end)
        self._skip_to(end)
        self._put(change(tag))

    # -- rows ----------------------------------------------------------------------------------------------
    def _write_row(self, cells: Mapping[int, Value]) -> None:
        start = self._base
        prefix = self._prefix(start)
        tag = self._tag(start)
        self._skip_to(start + len(tag))
        tag = _SPANS.sub(lambda m: self._spanned(m, cells), tag)
        self._put(tag[:-2].rstrip() + b">" if self._empty_row else tag)
        like = next((style for column, _, _, style in self._found if column == self._like), b"")
        left = sorted(cells.items())
        for column, at, after, style in self._found:
            while left and left[0][0] < column:
                self._put(self._cell(prefix, *left.pop(0), like))
            self._copy_to(at)
            if left and left[0][0] == column:
                self._skip_to(after)
                self._put(self._cell(prefix, *left.pop(0), style or like))
            else:
                self._copy_to(after)
        for column, value in left:
            self._put(self._cell(prefix, column, value, like))
        if self._empty_row:
            self._put(b"</%brow>" % prefix)
        self.written += 1

    def _cell(self, prefix: bytes, column: int, value: Value, style: bytes) -> bytes:
        looks = b' s="%b"' % style if style.isdigit() else b""
        opened = b'<%bc r="%b%d"%b' % (prefix, letters(column).encode(), self._row, looks)
        if isinstance(value, int):
            return b"%b><%bv>%d</%bv></%bc>" % (opened, prefix, value, prefix, prefix)
        text = escape(_ESCAPE_LIKE.sub("_x005F_", value)).encode()
        names = (opened, prefix, prefix, text, prefix, prefix, prefix)
        return b'%b t="inlineStr"><%bis><%bt xml:space="preserve">%b</%bt></%bis></%bc>' % names

    @staticmethod
    def _spanned(match: "re.Match[bytes]", cells: Mapping[int, Value]) -> bytes:
        first, last = min(int(match[2]), *cells), max(int(match[3]), *cells)
        return b"%b%d:%d%b" % (match[1], first, last, match[4])

    def _widened(self, tag: bytes) -> bytes:
        def wider(match: "re.Match[bytes]") -> bytes:
            found = area(match[2].decode("ascii", "replace"))
            if found is None or not self._widths:
                return match[0]
            top, left, bottom, right = found
            left, right = min(left, *self._widths), max(right, *self._widths)
            ref = f"{letters(left)}{top}:{letters(right)}{bottom}".encode()
            return match[1] + ref + match[3]

        return _REF.sub(wider, tag)

    # -- widths of columns -----------------------------------------------------------------------------------
    def _own_columns(self, prefix: bytes) -> list[bytes]:
        return [
            b'<%bcol min="%d" max="%d" width="%d" customWidth="1"/>' % (prefix, column, column, width)
            for column, width in sorted(self._widths.items())
        ]

    def _write_columns(self, prefix: bytes) -> None:
        """The columns as they were, those that cover a new one split around it."""
        kept: list[tuple[int, bytes]] = []
        for tag in self._columns or []:
            limits = {name: pattern.search(tag) for name, pattern in _LIMIT.items()}
            if not limits["min"] or not limits["max"]:
                continue
            first, last = int(limits["min"][2]), min(int(limits["max"][2]), MAX_COLUMNS)
            kept += [(start, _limited(tag, start, end)) for start, end in _around(first, last, self._widths)]
        own = zip(sorted(self._widths), self._own_columns(prefix), strict=True)
        self._put(*(tag for _, tag in sorted([*kept, *own])))


def _around(first: int, last: int, without: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """The parts of first..last that hold none of `without`."""
    for column in sorted(without):
        if first <= column <= last:
            if first < column:
                yield first, column - 1
            first = column + 1
    if first <= last:
        yield first, last


def _limited(tag: bytes, first: int, last: int) -> bytes:
    """A `col` tag for these columns; written as <col .../>, whatever it was."""
    for name, value in (("min", first), ("max", last)):
        tag = _LIMIT[name].sub(lambda m, value=value: b"%b%d%b" % (m[1], value, m[3]), tag)  # type: ignore[misc]
    return tag if tag.endswith(b"/>") else tag[:-1] + b"/>"
