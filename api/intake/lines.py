"""The lines of a text file, cleaned, with a record of what was cleaned; and the reader of plain .txt."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from api.intake.encoding import Encoding
from api.intake.model import InputRow
from shared.clean import MAX_TEXT, REPLACEMENT, clean_text, needs_cleaning
from shared.errors import IntakeError

SAMPLE_LINES, SAMPLE_CHARS = 2000, 4 * 2**20
# White space that str.strip() leaves alone, and what cleaning leaves of a cell of nothing but NULs.
_INVISIBLE = "\N{ZERO WIDTH SPACE}\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}\N{WORD JOINER}\ufeff"
_DOS_END = "\x1a"


class Lines:
    """An iterator over cleaned lines, ends kept, that remembers lines and mendings since the last `take`."""

    def __init__(self, stream: io.TextIOBase, path: Path) -> None:
        self._stream = stream
        self._path = path
        self.number = 0  # of the line read last, 1-based
        self._taken: list[str] = []
        self._notes: list[str] = []

    def __iter__(self) -> "Lines":
        return self

    def __next__(self) -> str:
        line = self._stream.readline(MAX_TEXT)
        if not line or line == _DOS_END:
            raise StopIteration
        self.number += 1
        if len(line) == MAX_TEXT:
            raise IntakeError(
                f"{self._path}: line {self.number} is longer than {MAX_TEXT:,} characters. "
                "Is this a file with one question a row? Split it into rows."
            )
        if self.number == 1:
            line = line.lstrip("\ufeff")  # a second byte order mark, left by a program that added its own
        if needs_cleaning(line):
            line = self._mend(line)
        self._taken.append(line)
        return line

    def _mend(self, line: str) -> str:
        if "\0" in line:
            self._note("NUL replaced")
        # Two surrogates that belong together were one character, written in two halves (CESU-8).
        line = line.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        mended = clean_text(line)
        if mended.count(REPLACEMENT) > line.count(REPLACEMENT) + line.count("\0"):
            self._note("lone surrogate replaced")
        return mended

    def _note(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)

    def take(self) -> tuple[list[str], list[str]]:
        """The lines read since the last call, and the notes on them."""
        lines, notes = self._taken, self._notes
        self._taken, self._notes = [], []
        return lines, notes


@contextmanager
def open_lines(path: Path, encoding: Encoding, *, universal: bool = False) -> Iterator[Lines]:
    """Lines of `path`; with `universal` every line end is read as a single newline."""
    errors = "surrogatepass" if encoding.codec.startswith("utf") else "strict"
    with path.open("rb") as raw:
        raw.seek(encoding.mark)
        newline = None if universal else ""
        with io.TextIOWrapper(raw, encoding=encoding.codec, errors=errors, newline=newline) as stream:
            yield Lines(stream, path)


def sample_lines(path: Path, encoding: Encoding) -> tuple[list[str], bool]:
    """The first lines, and whether they are all there are."""
    kept: list[str] = []
    size = 0
    with open_lines(path, encoding) as lines:
        for line in islice(lines, SAMPLE_LINES):
            kept.append(line)
            size += len(line)
            if size > SAMPLE_CHARS:
                return kept, False
        return kept, next(lines, None) is None


def as_question(text: str) -> str | None:
    """`text` without outer white space; None when nothing visible is left."""
    stripped = text.strip()
    if not stripped.strip(_INVISIBLE + REPLACEMENT + " \t\r\n"):
        return None
    return stripped


def txt_rows(path: Path, encoding: Encoding, skip: int) -> Iterator[InputRow]:
    """One row a line after the first `skip`; a blank line is an empty row, as an editor counts it."""
    with open_lines(path, encoding, universal=True) as lines:
        for number, line in enumerate(lines, start=1 - skip):
            _, notes = lines.take()
            text = line.removesuffix("\n")
            if number > 0:
                yield InputRow(number, as_question(text), [text], notes)
