"""Which files `--include` and `--exclude` let through."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from posixpath import basename


def wanted(path: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether a file is taken. `path` is relative to what was named, with slashes.

    A pattern fits the whole path or the name alone; `*` also runs over slashes, and `docs/` at the end of
    a pattern stands for all below. Without `include` every file is taken that no `exclude` fits.
    """
    if include and not any(_fits(path, pattern) for pattern in include):
        return False
    return not any(_fits(path, pattern) for pattern in exclude)


def _fits(path: str, pattern: str) -> bool:
    whole = pattern.removeprefix("./").removeprefix("**/")
    if whole.endswith("/"):
        whole += "*"
    return fnmatchcase(path, whole) or fnmatchcase(basename(path), whole) or fnmatchcase(path, f"*/{whole}")
