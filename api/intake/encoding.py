"""Which encoding a file is in, decided over all of its bytes in blocks, before a row is read.

UTF-8 and UTF-16 are certain or refused. An older one-byte or East Asian encoding is a guess, and the
report says so. A file that is mostly UTF-8 with some foreign bytes is refused: whichever way it were
read, some of its rows would be wrong.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from charset_normalizer import CharsetMatch, from_bytes

from api.intake.binary import control_share, refuse_other_formats
from shared.errors import IntakeError

BLOCK = 1 << 20
SAMPLE = 1 << 16

# UTF-32 first: its little-endian mark begins with the one of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le", "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8", "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16-be"),
)
_ENOUGH = 40  # bytes beyond ASCII without which only cp1252 is taken
_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
_LATIN = ("cp1250", "iso8859_2", "cp1254", "cp1257", "mac_roman", "cp850")
_OTHERS = (
    *("cp1251", "koi8_r", "cp866", "cp1253", "cp1255", "cp1256"),
    *("gb18030", "big5", "cp932", "euc_jp", "cp949"),
)
# Letters that share a text in no language of cp1252, but do when these bytes are of another code page.
_TELLTALES = (("šžý", "øìù", "cp1250"), ("þðÞÐ", "çüÇÜ", "cp1254"))
_CONTROL = re.compile("[\x80-\x9f]")
# Beyond ASCII, between two small letters, other than a dash or an apostrophe: has to be a small letter too.
_WITHIN_WORD = re.compile(r"(?<=[a-z])[^\x00-\x7f´·\u00ad‘-”–—…](?=[a-z])")


@dataclass(frozen=True, slots=True)
class Encoding:
    name: str  # what a person is told
    codec: str  # what Python is told
    mark: int  # length of the byte order mark, to be skipped
    note: str | None  # a sentence for the report, None for plain UTF-8


def detect(path: Path) -> Encoding:
    """The encoding of all of `path`. Raises IntakeError for binary, empty, mixed or unknown content."""
    with path.open("rb") as file:
        head = file.read(SAMPLE)
    if not head:
        raise IntakeError(f"{path}: the file is empty. It needs at least one question.")
    refuse_other_formats(path, head)
    for mark, codec, name in _MARKS:
        if head.startswith(mark):
            return _certain(path, Encoding(name, codec, len(mark), _said(name)))
    if (wide := _wide_without_mark(head)) is not None and _first_bad_line(path, wide, 0) is None:
        return Encoding(wide, wide, 0, _said(wide))
    bad_line = _first_bad_line(path, "utf-8", 0)
    if bad_line is None:
        if control_share(head) > 0.25:
            raise IntakeError(f"{path}: this is binary data, not text. Export the questions as CSV or text.")
        return Encoding("utf-8", "utf-8", 0, None)
    if control_share(head) > 0.02:
        raise IntakeError(f"{path}: this is binary data, not text. Export the questions as CSV or text.")
    _refuse_mixed(path, bad_line)
    return _legacy(path)


def _said(name: str) -> str | None:
    return None if name.startswith("utf-8") else f"The encoding is {name}."


def _certain(path: Path, encoding: Encoding) -> Encoding:
    bad_line = _first_bad_line(path, encoding.codec, encoding.mark)
    if bad_line is not None:
        raise IntakeError(
            f"{path}: line {bad_line}: begins as {encoding.name}, but these bytes are not. "
            "The file is damaged or was cut off: export it again."
        )
    return encoding


def _wide_without_mark(head: bytes) -> str | None:
    """UTF-16 without its mark: the ASCII characters in it, line ends at least, are bytes beside a NUL."""
    head = head[: len(head) - len(head) % 2]
    odd, even = head[1::2].count(0), head[::2].count(0)
    codec, hits = ("utf-16-le", odd) if odd > even else ("utf-16-be", even)
    one_sided = hits > 0.9 * (odd + even)
    if odd + even > 0.2 * len(head):
        text = codecs.getincrementaldecoder(codec)("replace").decode(head)
        return codec if one_sided and control_share(text.encode("utf-8")) < 0.05 else None
    if not odd + even or (_is_utf8(head) and control_share(head) <= 0.25):
        return None
    if one_sided and hits > 0.03 * len(head):
        return codec
    for codec in ("utf-16-le", "utf-16-be"):  # hardly any ASCII, as in Chinese: the line ends have to fit
        text = codecs.getincrementaldecoder(codec)("replace").decode(head)
        ends = text.count("\n")
        fits = ends > 0 and head.count(b"\n") <= 2 * ends
        if fits and not re.search("[\x00-\x08\x0e-\x1f\ufffd-\uffff]", text):
            return codec
    return None


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")("surrogatepass").decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def blocks(path: Path, skip: int = 0) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(skip)
        while block := file.read(BLOCK):
            yield block


def _first_bad_line(path: Path, codec: str, skip: int) -> int | None:
    """The 1-based line of the first bytes that `codec` refuses; None when it takes the whole file.

    Lone surrogates pass: they are a fault of the text, cleaned row by row, not of the encoding.
    """
    errors = "surrogatepass" if codec.startswith("utf") else "strict"
    decoder = codecs.getincrementaldecoder(codec)(errors)
    lines = 1
    try:
        for block in blocks(path, skip):
            lines += decoder.decode(block).count("\n")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        return lines + error.object[: error.start].count(b"\n")
    return None


def _refuse_mixed(path: Path, bad_line: int) -> None:
    good = bad = 0
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    for block in blocks(path):
        wide = re.sub("[\x00-\x7f]+", "", decoder.decode(block))
        stray = sum("\udc80" <= char <= "\udcff" for char in wide)
        bad, good = bad + stray, good + len(wide) - stray
    if good >= max(bad, 1):
        raise IntakeError(
            f"{path}: line {bad_line}: most of the file is UTF-8, but this line holds bytes that are not. "
            "The file is damaged, cut off, or joined from files of several encodings: save it as UTF-8."
        )


def _legacy(path: Path) -> Encoding:
    sample, long_share, high = _high_sample(path)
    # Words of Cyrillic, Greek, Arabic or Chinese are runs of high bytes; Western words hold one or two.
    codec = _western(path, sample) if long_share < 0.4 else _hinted(sample, _OTHERS)
    if high < _ENOUGH and codec != "cp1252":
        codec = None  # too little to tell koi8-r from cp1251
    if codec is None or _first_bad_line(path, codec, 0) is not None:
        raise IntakeError(
            f"{path}: the file is not UTF-8, and its encoding cannot be told with certainty. "
            'Save it again as UTF-8 (in Excel: "CSV UTF-8").'
        )
    note = f"The file is not UTF-8; its encoding was taken to be {codec}. Check the accents in the results."
    return Encoding(codec, codec, 0, note)


def _high_sample(path: Path) -> tuple[bytes, float, int]:
    """Up to 64 KiB of lines with high bytes; the share of high bytes in runs of 3 and more; their number."""
    sample = bytearray()
    total = long = 0
    for number, block in enumerate(blocks(path)):
        runs = [len(match.group()) for match in _HIGH_RUN.finditer(block)]
        total += sum(runs)
        long += sum(run for run in runs if run >= 3)
        # Without its first and last line, which may be cut, and so end within a character.
        whole = block.splitlines(keepends=True)[int(number > 0) : -1 if len(block) == BLOCK else None]
        for line in whole:
            if len(sample) + len(line) > SAMPLE:
                break
            if not line.isascii():
                sample += line
    return bytes(sample), long / max(total, 1), total


def _western(path: Path, sample: bytes) -> str | None:
    if _first_bad_line(path, "cp1252", 0) is None:
        text = sample.decode("cp1252", "replace")
        if not _odd(text):
            return next(
                (codec for one, other, codec in _TELLTALES if _often(text, one) and _often(text, other)),
                "cp1252",
            )
    return _hinted(sample, _LATIN)


def _often(text: str, letters: str) -> bool:
    return sum(text.count(char) for char in letters) * 20 > sum(not char.isascii() for char in text)


def _odd(text: str) -> bool:
    """Whether more than a tenth of what is not ASCII is a sign or a capital within a word, as in "fŸr"."""
    if _CONTROL.search(text):
        return True
    odd = sum(not char.islower() for char in _WITHIN_WORD.findall(text))
    return odd * 10 > sum(not char.isascii() for char in text)


def _hinted(sample: bytes, codecs_: Sequence[str]) -> str | None:
    """The likeliest of `codecs_`, when it is clearly likelier than the next one that gives another text."""
    usable = [
        match
        for match in from_bytes(sample, cp_isolation=list(codecs_))
        if match.percent_chaos <= 10 and not _odd(str(match)) and not _shouting(str(match))
    ]
    if not usable:
        return None
    usable.sort(key=_unlikeliness)
    best, *others = usable
    if any(_unlikeliness(other) - _unlikeliness(best) < 1 and str(other) != str(best) for other in others):
        return None
    return str(best.encoding)


def _unlikeliness(match: CharsetMatch) -> float:
    return match.percent_chaos - match.percent_coherence / 10


def _shouting(text: str) -> bool:
    """Whether the letters beyond ASCII are mostly capitals: what koi8-r makes of Hebrew and of cp1251."""
    cased = [char for char in text if not char.isascii() and char.lower() != char.upper()]
    return sum(map(str.isupper, cased)) > 0.6 * max(len(cased), 1)
