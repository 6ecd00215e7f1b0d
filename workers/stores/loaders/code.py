"""The files of a repository as documents: code cut by its language, text and Markdown as elsewhere."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from shared.globs import wanted
from workers.stores.git import Entry, Repository
from workers.stores.loaders.base import MAX_WHOLE_FILE, LoadedDocument, LoadError
from workers.stores.loaders.docx import load_docx
from workers.stores.loaders.pdf import load_pdf
from workers.stores.loaders.text import load_markdown, load_text

MAX_CHARACTERS = 50_000  # of one file; what is longer is data, or written by a program
_MAX_BYTES = MAX_CHARACTERS * 4  # the longest that so many characters can be in UTF-8
_NAMED = 20  # files named in the notes

# suffix -> a value of langchain-text-splitters' Language
LANGUAGES = {
    suffix: language
    for language, suffixes in {
        "c": ".c .h",
        "cobol": ".cob .cbl",
        "cpp": ".cc .cpp .cxx .hh .hpp .hxx",
        "csharp": ".cs",
        "elixir": ".ex .exs",
        "go": ".go",
        "haskell": ".hs",
        "html": ".html .htm",
        "java": ".java",
        "js": ".js .jsx .mjs .cjs",
        "kotlin": ".kt .kts",
        "latex": ".tex",
        "lua": ".lua",
        "php": ".php",
        "powershell": ".ps1 .psm1",
        "proto": ".proto",
        "python": ".py .pyi",
        "r": ".r",
        "rst": ".rst",
        "ruby": ".rb",
        "rust": ".rs",
        "scala": ".scala",
        "sol": ".sol",
        "swift": ".swift",
        "ts": ".ts .tsx",
    }.items()
    for suffix in suffixes.split()
}
_Load = Callable[[Path, list[str]], Iterator[LoadedDocument]]
_WHOLE: dict[str, _Load] = {".pdf": load_pdf, ".docx": load_docx}


def load_repository(
    repository: Repository, include: Sequence[str], exclude: Sequence[str], notes: list[str]
) -> Iterator[LoadedDocument]:
    """The files of the commit that the globs let through.

    Source = `repository:path`, which stays the same from commit to commit; it is cited with the commit.
    Files over `MAX_CHARACTERS` and binary ones are left out and told in `notes`. Raises LoadError.
    """
    too_long: list[str] = []
    left_out: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="cragline-file-") as folder, repository.reader() as reader:
        for entry in repository.entries(notes):
            if not wanted(entry.path, include, exclude):
                left_out["by --include and --exclude"] += 1
                continue
            suffix = PurePosixPath(entry.path).suffix.lower()
            if entry.size > (MAX_WHOLE_FILE if suffix in _WHOLE else _MAX_BYTES):
                too_long.append(entry.path)
                continue
            file = Path(folder) / f"file{suffix if suffix in _WHOLE or suffix == '.md' else '.txt'}"
            file.write_bytes(reader.read(entry))
            try:
                parts = list(_loaded(file, suffix, notes, entry))
            except LoadError as error:
                if suffix in _WHOLE:
                    notes.append(str(error).replace(str(file), entry.path))
                else:
                    left_out["binary"] += 1
                continue
            if suffix not in _WHOLE and sum(len(part.text) for part in parts) > MAX_CHARACTERS:
                too_long.append(entry.path)
                continue
            yield from (_placed(part, repository, entry) for part in parts)
    notes.extend(f"{count} files left out: {reason}" for reason, count in left_out.items())
    if too_long:
        more = f" and {len(too_long) - _NAMED} more" if len(too_long) > _NAMED else ""
        named = ", ".join(too_long[:_NAMED])
        notes.append(
            f"{len(too_long)} files left out, as they are over {MAX_CHARACTERS:,} characters: {named}{more}"
        )


def _loaded(file: Path, suffix: str, notes: list[str], entry: Entry) -> Iterator[LoadedDocument]:
    said: list[str] = []
    load = _WHOLE.get(suffix, load_markdown if suffix == ".md" else load_text)
    yield from load(file, said)
    notes.extend(f"{entry.path}: {text}" for text in said)


def _placed(part: LoadedDocument, repository: Repository, entry: Entry) -> LoadedDocument:
    """`part` as a document of the repository instead of one of a temporary file."""
    language = LANGUAGES.get(PurePosixPath(entry.path).suffix.lower())
    source = f"{repository.name}:{entry.path}"
    return replace(
        part,
        source=source,
        path=source,
        title=entry.path,
        language=language or part.language,
        code=language,
        commit=repository.commit,
        cited=f"{repository.name}@{repository.commit[:12]}:{entry.path}",
    )
