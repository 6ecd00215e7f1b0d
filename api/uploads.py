"""What was sent, as a file on disk: a body is never whole in memory, whatever its format.

The file keeps the sender's name for it, because its ending says how it is read, and its name stands in
what is said about it. Files of one request are in a folder of their own, which goes with the request.
"""

import asyncio
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from api.problems import ApiError
from shared.clean import clean_text, one_line

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
# media types that say how a body is read, and the ending that says the same
ENDINGS = {
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/x-ndjson": ".jsonl",
    "application/ndjson": ".jsonl",
    "application/jsonl": ".jsonl",
    "text/plain": ".txt",
    XLSX: ".xlsx",
    "application/zip": ".zip",
}
_BLOCK = 1024 * 1024  # bytes gathered before they are written, on a thread
_LONGEST_NAME = 150  # bytes in UTF-8; file systems take 255, and what is beside a file has a longer name
_ODD = re.compile(r"[^\w .()\[\]+,@=-]")
MAX_FILES = 100
MAX_FIELDS = 100
MAX_FIELD = 64 * 1024  # bytes


@dataclass(frozen=True)
class Received:
    """Files that were sent, the SHA-256 of each, and the fields of the form they came with."""

    folder: Path
    files: list[Path]
    digests: list[str]
    fields: dict[str, list[str]] = field(default_factory=dict)


@asynccontextmanager
async def folder() -> AsyncIterator[Path]:
    """A folder for the files of one request."""
    made = Path(await run_in_threadpool(tempfile.mkdtemp, prefix="cragline-"))
    try:
        yield made
    finally:
        # shielded: when the sender has gone, this runs in a task that is being cancelled
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, made, ignore_errors=True))


async def receive(request: Request, into: Path, filename: str | None) -> Received:
    """The body's file or files, written to `into`. Raises ApiError for a media type that says no format."""
    kind = media_type(request)
    if kind == "multipart/form-data":
        return await _form(request, into)
    name = usable_name(filename or "questions", kind)
    path = into / name
    digest = await _written(request.stream(), path)
    return Received(into, [path], [digest])


async def small_body(request: Request, most: int, remedy: str) -> bytes:
    """A body that is read in memory. Raises ApiError 413 with the remedy beyond `most` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise ApiError(413, "too-large", f"This may have at most {most:,} bytes. {remedy}")
    return bytes(body)


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def usable_name(given: str, kind: str = "") -> str:
    """The sender's file name as one of ours: no folders, nothing odd, with an ending. Raises ApiError."""
    name = one_line(clean_text(given)).replace("\\", "/").rpartition("/")[2]
    name = _ODD.sub("_", name).lstrip(". ").encode()[-_LONGEST_NAME:].decode(errors="ignore") or "file"
    if "." in name:
        return name
    if kind in ENDINGS:
        return name + ENDINGS[kind]
    raise ApiError(
        415,
        "media-type",
        f"The format cannot be told: Content-Type is {kind or 'not given'}. Send one of {', '.join(ENDINGS)}, "
        "or multipart/form-data with a file, or name it with ?filename=questions.csv.",
    )


async def _written(chunks: AsyncIterator[bytes], path: Path) -> str:
    digest = sha256()
    with await run_in_threadpool(path.open, "wb") as out:
        block = bytearray()
        async for chunk in chunks:
            block += chunk
            if len(block) >= _BLOCK:
                await run_in_threadpool(_put, out, bytes(block), digest)
                block.clear()
        await run_in_threadpool(_put, out, bytes(block), digest)
    return digest.hexdigest()


def _put(out: BinaryIO, block: bytes, digest: Any) -> None:
    digest.update(block)
    out.write(block)


async def _form(request: Request, into: Path) -> Received:
    try:
        form = await request.form(max_files=MAX_FILES, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD)
    except HTTPException as error:
        if error.status_code != 400:
            raise
        raise ApiError(400, "form", f"The form cannot be read: {error.detail}") from None
    found = Received(into, [], [])
    try:
        for name, value in form.multi_items():
            if not isinstance(value, UploadFile):
                found.fields.setdefault(name, []).append(value)
                continue
            path = into / usable_name(value.filename or "file", value.content_type or "")
            if path in found.files:
                raise ApiError(422, "form", f"Two files are named {path.name}. Give each a name of its own.")
            found.files.append(path)
            found.digests.append(await run_in_threadpool(_copied, value.file, path))
    finally:
        await form.close()
    return found


def _copied(source: BinaryIO, path: Path) -> str:
    digest = sha256()
    with path.open("wb") as out:
        while block := source.read(_BLOCK):
            _put(out, block, digest)
    return digest.hexdigest()
