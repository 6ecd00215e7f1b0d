"""Which files `cragline ingest` takes."""

import os
from pathlib import Path

import pytest

from shared.errors import NotFound, UsageError
from shared.ingest import check_collection_name
from shared.sources import CannotIngest, expand


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def test_a_folder_gives_its_files_and_counts_the_rest(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "b.txt",
        "a/z.MD",
        "a/y.pdf",
        "x.pptx",
        "y.pptx",
        "LICENSE",
        ".hidden.txt",
        ".git/config.txt",
    )
    files, skipped = expand([tmp_path])
    assert [str(one.relative_to(tmp_path)) for one in files] == ["b.txt", "a/y.pdf", "a/z.MD"]
    assert skipped == {".pptx": 2, "no suffix": 1, "hidden": 1}


def test_what_programs_left_there_is_not_worth_a_word(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "__pycache__/a.cpython-311.pyc", "__pycache__/b.txt", "old.PYC", "a.py")
    files, skipped = expand([tmp_path])
    assert ([one.name for one in files], skipped) == (["a.txt"], {".py": 1})


def test_files_are_absolute_and_each_comes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a.txt", "d/b.txt")
    monkeypatch.chdir(tmp_path)
    files, _ = expand([Path("a.txt"), Path("d/../a.txt"), Path("."), tmp_path / "d"])
    assert files == [tmp_path / "a.txt", tmp_path / "d" / "b.txt"]


def test_links_that_run_in_a_circle_end(tmp_path: Path) -> None:
    touch(tmp_path, "d/a.txt")
    (tmp_path / "d" / "again").symlink_to(tmp_path / "d", target_is_directory=True)
    (tmp_path / "d" / "self.txt").symlink_to(tmp_path / "d" / "self.txt")
    (tmp_path / "d" / "dead.txt").symlink_to(tmp_path / "nowhere.txt")
    (tmp_path / "d" / "link.txt").symlink_to(tmp_path / "d" / "a.txt")
    os.mkfifo(tmp_path / "d" / "pipe.txt")
    files, skipped = expand([tmp_path])
    assert [one.name for one in files] == ["a.txt", "link.txt"]
    assert skipped == {"not a file": 3}


def test_what_is_named_directly_must_be_right(tmp_path: Path) -> None:
    touch(tmp_path, "a.pptx", ".hidden.txt")
    with pytest.raises(NotFound, match="no such file or folder"):
        expand([tmp_path / "gone.txt"])
    with pytest.raises(CannotIngest, match=r"a\.pptx: this kind of file.*\.jsonl"):
        expand([tmp_path / "a.pptx"])
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "pipe.txt", Path("/dev/null")):
        with pytest.raises(CannotIngest, match="neither a file nor a folder") as caught:
            expand([path])
        assert caught.value.exit_code == NotFound.exit_code == 1
    assert len(expand([tmp_path / ".hidden.txt"])[0]) == 1


def test_names_that_postgres_cannot_hold(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    try:
        with open(name, "w") as file:
            file.write("x")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    assert expand([tmp_path]) == ([], {"name not UTF-8": 1})
    with pytest.raises(CannotIngest, match="not valid UTF-8") as caught:
        expand([Path(os.fsdecode(name))])
    str(caught.value).encode()  # can be printed


@pytest.mark.parametrize("name", ["default", "a", "Docs_2.1-b", "x" * 100])
def test_collection_names(name: str) -> None:
    assert check_collection_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a b", "a\n", "é", "x" * 101, "a\\b", "-x"])
def test_collection_names_that_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="letters, digits"):
        check_collection_name(name)
