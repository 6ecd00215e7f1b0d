"""Feeds the XML parts of a workbook through expat, within bounds that a hostile file cannot pass."""

from collections.abc import Callable, Iterator
from typing import IO
from xml.parsers import expat

from shared.errors import IntakeError

CHUNK = 2**16  # bytes
MAX_DEPTH = 64  # elements within elements; a sheet has about ten
MAX_SILENCE = 32 * 2**20  # bytes without a single event: one endless tag, which expat would hold in memory
_NAMESPACES = (
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
    "http://purl.oclc.org/ooxml/spreadsheetml/main",  # "strict" workbooks
    "http://schemas.openxmlformats.org/package/2006/relationships",
    "http://schemas.openxmlformats.org/package/2006/content-types",
)


class Target:
    """Receives the elements of the spreadsheet's own namespaces, by their local names.

    Attributes keep their names, those of other namespaces as `namespace}name`.
    """

    parser: expat.XMLParserType  # set by `feed`; `CurrentByteIndex` is where the event stands

    def start(self, name: str, attributes: dict[str, str]) -> None: ...
    def end(self, name: str) -> None: ...
    def text(self, data: str) -> None: ...


def feed(stream: IO[bytes], target: Target, place: str) -> Iterator[bytes]:
    """Parses `stream`, yielding each chunk of bytes before it is parsed and b"" at the end.

    Raises IntakeError, beginning with `place`, for XML that is broken, declares entities, or is not UTF-8.
    """
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    target.parser = parser
    guard = _Guard(target, place)
    parser.StartElementHandler = guard.start
    parser.EndElementHandler = guard.end
    parser.CharacterDataHandler = guard.text
    parser.StartDoctypeDeclHandler = guard.refuse_doctype
    parser.XmlDeclHandler = guard.check_encoding
    try:
        first = True
        while chunk := stream.read(CHUNK):
            if first and chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
                guard.check_encoding("", "utf-16", 0)
            first = False
            yield chunk
            guard.silence += len(chunk)
            parser.Parse(chunk, False)
            if guard.silence > MAX_SILENCE:
                raise IntakeError(
                    f"{place}: a single tag of more than {MAX_SILENCE:,} bytes. It is not read."
                )
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise IntakeError(
            f"{place}: broken XML ({expat.errors.messages[error.code]}, line {error.lineno}). "
            "Open the workbook and save it again."
        ) from None
    yield b""


class _Guard:
    def __init__(self, target: Target, place: str) -> None:
        self._target = target
        self._place = place
        self._depth = 0
        self._names: dict[str, str] = {}  # an expanded name -> its local name, "" for a foreign one
        self.silence = 0

    def _local(self, name: str) -> str:
        namespace, _, local = name.rpartition("}")
        if namespace not in _NAMESPACES:
            local = ""
        if len(self._names) < 1000:
            self._names[name] = local
        return local

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.silence = 0
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise IntakeError(f"{self._place}: elements nested more than {MAX_DEPTH} deep. It is not read.")
        local = self._names.get(name)
        if local is None:
            local = self._local(name)
        if local:
            self._target.start(local, attributes)

    def end(self, name: str) -> None:
        self._depth -= 1
        local = self._names.get(name)
        if local is None:
            local = self._local(name)
        if local:
            self._target.end(local)

    def text(self, data: str) -> None:
        self.silence = 0
        self._target.text(data)

    def refuse_doctype(self, *_: object) -> None:
        raise IntakeError(
            f"{self._place}: it declares a document type or entities, which no spreadsheet program writes. "
            "It is not read."
        )

    def check_encoding(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if encoding is not None and encoding.lower() not in ("utf-8", "utf8", "us-ascii"):
            raise IntakeError(f"{self._place}: its XML is not UTF-8. Open the workbook and save it again.")


def read_part(stream: IO[bytes], target: Target, place: str) -> None:
    """`feed` to the end, for parts whose bytes nobody needs."""
    for _ in feed(stream, target, place):
        pass


class Elements(Target):
    """Calls `found(name, attributes)` for each element: enough for the small parts."""

    def __init__(self, found: Callable[[str, dict[str, str]], None]) -> None:
        self._found = found

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._found(name, attributes)
