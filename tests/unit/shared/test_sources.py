"""What the words behind `cragline ingest` are taken for."""

from pathlib import Path

import pytest

from shared.errors import NotFound, UsageError
from shared.sources import Options, plan_work


def kinds(*sources: str | Path, **options: object) -> list[tuple[str, str]]:
    work, _ = plan_work(sources, Options(**options))  # type: ignore[arg-type]
    return [(one.kind.value, one.path) for one in work]


def test_each_kind_by_its_look(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("x")
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    assert kinds(tmp_path / "docs") == [("file", str(tmp_path / "docs" / "a.md"))]
    assert kinds(str(tmp_path / "repo")) == [("repository", str(tmp_path / "repo"))]
    assert kinds("HTTPS://Example.com#x", "https://example.com/") == [("site", "https://example.com/")]
    assert kinds("git+https://example.com/o/r@v1.0") == [("repository", "git+https://example.com/o/r@v1.0")]


@pytest.mark.parametrize(
    "source",
    [
        "ftp://example.com/x",
        "git+ssh://example.com/x",
        "git+http://example.com/x",
        "git+file:///srv/repo",
        "git@example.com:o/r.git",
        "ssh://git@example.com/o/r",
        "https://me:secret-word@example.com/",
        "git+https://me:secret-word@example.com/o/r",
        "ext::sh -c id",
        "git+ext::sh -c id",
    ],
)
def test_what_is_refused_before_a_row_is_written(source: str) -> None:
    with pytest.raises((UsageError, NotFound)) as caught:
        kinds(source)
    assert "secret-word" not in str(caught.value)


def test_options_go_with_sites_and_repositories_only(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    work, _ = plan_work(
        [tmp_path / "a.md", "https://example.com/"], Options(depth=2, include=("*.py",), prune=True)
    )
    assert work[0].options is None
    assert work[1].options == {
        "include": ("*.py",),
        "exclude": (),
        "depth": 2,
        "sitemap": False,
        "max_pages": 100,
        "allow_private": False,
        "prune": True,
    }


def test_globs_choose_in_folders_but_not_what_is_named(tmp_path: Path) -> None:
    for name in ("a.md", "b.txt", "c.txt"):
        (tmp_path / name).write_text("x")
    work, skipped = plan_work([tmp_path], Options(include=("*.txt",), exclude=("c.*",)))
    assert [Path(one.path).name for one in work] == ["b.txt"]
    assert skipped == {"by --include and --exclude": 2}
    assert kinds(tmp_path / "a.md", include=("*.txt",)) == [("file", str(tmp_path / "a.md"))]


def test_prune_adds_the_folder_and_needs_it_to_be_there(tmp_path: Path) -> None:
    assert kinds(tmp_path, prune=True) == [("prune", str(tmp_path))]
    (tmp_path / "a.md").write_text("x")
    assert kinds(tmp_path / "a.md", prune=True) == [("file", str(tmp_path / "a.md"))]
    with pytest.raises(NotFound, match=r"no such file or folder\. --prune looks through folders that exist"):
        kinds(tmp_path / "gone", prune=True)
    with pytest.raises(NotFound, match=r"no such file or folder\.$"):
        kinds(tmp_path / "gone")
