"""Repositories made by the test: what is read, what is left out, and what a hostile one cannot do."""

import os
import subprocess
from pathlib import Path

import pytest

from shared.addresses import FetchError
from tests.unit.workers.stores.test_loaders import pdf
from workers.stores import git
from workers.stores.chunks import split
from workers.stores.git import opened, split_ref
from workers.stores.loaders import LoadedDocument, LoadError
from workers.stores.loaders.code import load_repository

CODE = '"""A module."""\n\nimport os\n\n\ndef first() -> int:\n    return 1\n\n\ndef second() -> int:\n    return 2\n'


def sh(folder: Path, *words: str) -> str:
    environment = {
        **os.environ,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.com",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.com",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(folder: Path, files: dict[str, str | bytes]) -> str:
    """Write the files, commit all; returns the commit."""
    if not (folder / ".git").exists():
        folder.mkdir(parents=True, exist_ok=True)
        sh(folder, "init", "-q", "-b", "main")
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    sh(folder, "add", "-A", "-f")
    sh(folder, "commit", "-q", "-m", "x")
    return sh(folder, "rev-parse", "HEAD")


def read(
    source: str, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> tuple[list[LoadedDocument], list[str]]:
    notes: list[str] = []
    with opened(source, allow_private=True, allow_file=True) as repository:
        return list(load_repository(repository, include, exclude, notes)), notes


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return tmp_path / "repo"


def test_a_checkout_is_read_at_its_commit(repo: Path, tmp_path: Path) -> None:
    manual = pdf(tmp_path / "m.pdf", "page one", title="Manual")
    head = commit(
        repo,
        {
            "src/a.py": CODE,
            "README.md": "# Read me\nFirst.\n\n## More\nSecond.\n",
            "LICENSE": "Free.\n",
            "web/x.html": "<p>markup is code here</p>\n",
            "m.pdf": manual.read_bytes(),
            "logo.png": b"\x89PNG\r\n\x1a\n" + bytes(range(32)) * 20,
        },
    )
    (repo / "untracked.py").write_text("x = 1")
    (repo / "LICENSE").write_text("changed, not committed")
    documents, notes = read(str(repo))
    assert [(one.source.removeprefix(f"{repo}:"), one.language, one.code) for one in documents] == [
        ("LICENSE", None, None),
        ("README.md", None, None),
        ("m.pdf", None, None),
        ("src/a.py", "python", "python"),
        ("web/x.html", "html", "html"),
    ]
    assert {one.commit for one in documents} == {head}
    assert documents[0].text == "Free.\n"
    assert documents[1].markdown
    assert documents[2].page == 1
    assert documents[3].cited == f"{repo}@{head[:12]}:src/a.py"
    assert notes == ["1 files left out: binary"]


def test_code_is_cut_by_its_language_with_lines(repo: Path) -> None:
    functions = [f"def f{n}(x: int) -> int:\n    y = x * {n}\n    return y + {n}\n" for n in range(12)]
    code = "\n\n".join(functions)
    commit(repo, {"a.py": code})
    documents, _ = read(str(repo))
    made = list(split(documents, 60, 0))
    assert len(made) > 2
    lines = code.split("\n")
    for chunk in made:
        assert chunk.text.startswith("def f")
        assert chunk.lines is not None
        first, last = map(int, chunk.lines.split("-"))
        assert "\n".join(lines[first - 1 : last]).strip() == chunk.text


def test_long_files_are_left_out_and_named(repo: Path) -> None:
    commit(
        repo,
        {
            "ok.py": "x = 1\n" * 8000,  # 48,000
            "long.py": "x = 1\n" * 9000,  # 54,000
            "huge.json": "0" * 300_000,
            "wide.txt": "日" * 45_000,  # many bytes, few characters
        },
    )
    documents, notes = read(str(repo))
    assert [one.title for one in documents] == ["ok.py", "wide.txt"]
    assert notes == ["2 files left out, as they are over 50,000 characters: huge.json, long.py"]


def test_globs_choose(repo: Path) -> None:
    commit(repo, {"a.py": "a", "src/b.py": "b", "src/c.md": "c", "tests/d.py": "d"})
    documents, notes = read(str(repo), ("*.py",), ("tests/",))
    assert [one.title for one in documents] == ["a.py", "src/b.py"]
    assert notes == ["2 files left out: by --include and --exclude"]


def test_a_remote_one_by_branch_tag_and_commit(repo: Path, tmp_path: Path) -> None:
    first = commit(repo, {"a.txt": "one"})
    sh(repo, "tag", "v1")
    sh(repo, "config", "uploadpack.allowAnySHA1InWant", "true")
    commit(repo, {"a.txt": "two"})
    before = set(os.listdir(tmp_path))
    url = f"git+file://{repo}"
    for ref, text in (("", "two"), ("@main", "two"), ("@v1", "one"), (f"@{first}", "one")):
        documents, _ = read(url + ref)
        assert [one.text for one in documents] == [text]
        assert documents[0].source == f"file://{repo}:a.txt"
    with pytest.raises(LoadError, match="could not fetch 'nothing'"):
        read(f"{url}@nothing")
    assert set(os.listdir(tmp_path)) == before


def test_a_hostile_repository_runs_nothing_and_leads_nowhere(repo: Path, tmp_path: Path) -> None:
    secret, mark = tmp_path / "secret.txt", tmp_path / "mark"
    secret.write_text("secret-word")
    repo.mkdir()
    sh(repo, "init", "-q", "-b", "main")
    os.symlink(secret, repo / "link.txt")
    os.symlink(tmp_path, repo / "folder")
    commit(repo, {"a.txt": "a", ".gitattributes": "* filter=evil diff=evil", ".gitmodules": "[submodule"})
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    for hook in ("post-checkout", "post-merge", "reference-transaction"):
        os.symlink(script, repo / ".git" / "hooks" / hook)
    for name in (
        "core.fsmonitor",
        "filter.evil.smudge",
        "diff.evil.textconv",
        "core.pager",
        "core.sshCommand",
    ):
        sh(repo, "config", name, str(script))
    mark.unlink(missing_ok=True)
    for source in (str(repo), f"git+file://{repo}"):
        documents, notes = read(source)
        assert "secret-word" not in "".join(one.text for one in documents)
        assert "a.txt" in [one.title for one in documents]
        assert any("links, submodules" in one for one in notes)
    assert not mark.exists()


def test_the_environment_of_git_holds_no_secret(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-word")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    environment = git._environment(repo)
    assert "secret-word" not in str(environment)
    assert not any("proxy" in name.lower() for name in environment)
    assert environment["GIT_TERMINAL_PROMPT"] == "0"
    commit_here = {"a.txt": "a"}
    monkeypatch.delenv("GIT_DIR")
    commit(repo, commit_here)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert len(read(str(repo))[0]) == 1


def test_too_much_or_too_slow_ends(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(repo, {"a.bin": os.urandom(300_000)})
    monkeypatch.setattr(git, "MAX_REPOSITORY", 100_000)
    with pytest.raises(LoadError, match="more than the 0 MB that a repository may have"):
        read(f"git+file://{repo}")
    monkeypatch.setattr(git, "FETCH_SECONDS", -1.0)
    with pytest.raises(LoadError, match="not fetched within"):
        read(f"git+file://{repo}")


def test_addresses_are_checked_and_pinned() -> None:
    with (
        pytest.raises(FetchError, match="private"),
        opened(
            "git+https://inside.example/o/r", allow_private=False, resolver=lambda host, port: ["10.0.0.1"]
        ),
    ):
        pass
    assert git._pinned("https://x.example/o/r", False, lambda host, port: ["1.1.1.1", "2606:4700::1111"]) == [
        "http.curloptResolve=x.example:443:1.1.1.1,[2606:4700::1111]"
    ]


@pytest.mark.parametrize(
    "source",
    [
        "git+http://x.example/r",
        "git+ssh://x.example/r",
        "git+ext::sh -c id",
        "git+file:///tmp/x",
        "git+--upload-pack=x",
    ],
)
def test_other_ways_are_refused(source: str) -> None:
    with pytest.raises((LoadError, FetchError)), opened(source, allow_private=False):
        pass


def test_refs() -> None:
    assert split_ref("https://h.example/o/r@feature/x-1") == ("https://h.example/o/r", "feature/x-1")
    assert split_ref("https://h.example/o/r.git") == ("https://h.example/o/r.git", "HEAD")
    for ref in ("--upload-pack=x", "a..b", "", "a b", "-x"):
        if ref:
            with pytest.raises(LoadError, match="behind the @"):
                split_ref(f"https://h.example/o/r@{ref}")


def test_no_repository_there_is_said(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with pytest.raises(LoadError, match="git could not read the repository"):
        read(str(tmp_path))
    empty = tmp_path / "empty"
    empty.mkdir()
    sh(empty, "init", "-q")
    with pytest.raises(LoadError, match="git could not read"):
        read(str(empty))
