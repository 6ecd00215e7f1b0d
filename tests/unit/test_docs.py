"""The README and the handbook say what is true: generated pages, links, commands, variables, numbers."""

import csv
import importlib.util
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from api.cli.main import app
from api.intake import open_questions
from shared.batches import question_key
from shared.plan import PIPELINES, make_plan, parse_sets
from shared.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
GENERATED = {"settings.md", "cli.md", "schema.md"}
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])


def load_generator() -> Any:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generator()


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run() -> int:
        monkeypatch.setattr("sys.argv", ["generate.py", "--check"])
        return int(generate.main())

    return run


# -- generated pages -------------------------------------------------------------------------------------
def test_generated_pages_are_fresh(check: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert check() == 0, capsys.readouterr().out


def test_check_names_a_stale_page_and_writes_nothing(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for page in DOCS.glob("*.md"):
        (tmp_path / page.name).write_bytes(page.read_bytes())
    old = (tmp_path / "settings.md").read_text(encoding="utf-8").replace("CRAGLINE_WINDOW", "CRAGLINE_OLD")
    (tmp_path / "settings.md").write_text(old, encoding="utf-8")
    diagram = (
        (tmp_path / "pipelines.md").read_text(encoding="utf-8").replace("retrieve --> ", "retrieve ==> ")
    )
    diagram = diagram.replace("rewrite_query --> web_search;", "")
    (tmp_path / "pipelines.md").write_text(diagram, encoding="utf-8")
    schema = generate.schema_page()
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    monkeypatch.setattr(generate, "schema_page", lambda: schema)  # it reads the views beside the real docs
    assert check() == 1
    said = capsys.readouterr().out
    assert "settings.md" in said
    assert "pipelines.md" in said
    assert "cli.md" not in said
    assert (tmp_path / "settings.md").read_text(encoding="utf-8") == old


def test_every_setting_and_parameter_is_on_the_page() -> None:
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        assert f"- `{generate.variable(name, field)}` ({name};" in page
        assert field.description
        assert field.description in page
    for kind in PIPELINES.values():
        for name in kind.model_fields:
            assert f"- `{name}` (" in page


def test_no_default_of_a_secret_could_be_printed() -> None:
    for name, field in Settings.model_fields.items():
        if "SecretStr" in str(field.annotation):
            assert field.default is None, name


# -- links -----------------------------------------------------------------------------------------------
@EVERY_PAGE
def test_relative_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}"


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert linked == {page.name for page in DOCS.glob("*.md")}


# -- commands --------------------------------------------------------------------------------------------
COMMANDS: dict[tuple[str, ...], Any] = dict(generate.commands(typer.main.get_command(app)))
_INLINE = re.compile(r"`(?:\$ )?((?:\w+=\S+ )?cragline [^`]+)`")
_LINE = re.compile(r"^(?: {4})?(?:\$ )?(cragline .+)$", re.MULTILINE)
_GROUPS = {words[:1] for words in COMMANDS if len(words) > 1}


def quoted_commands(page: Path) -> Iterator[list[str]]:
    """Every `cragline ...` of a page, as words after `cragline`; comments behind them are dropped."""
    text = page.read_text(encoding="utf-8")
    code = "\n".join(
        re.findall(r"```(?:sh|text)?\n(.*?)```", text, re.DOTALL) + re.findall(r"^ {4}.*$", text, re.M)
    )
    for line in [*_INLINE.findall(text), *_LINE.findall(code)]:
        words = shlex.split(line, comments=True)
        yield words[words.index("cragline") + 1 :]


def split_command(words: list[str]) -> tuple[Any, list[str]]:
    for length in (2, 1):
        if tuple(words[:length]) in COMMANDS:
            return COMMANDS[tuple(words[:length])], words[length:]
    raise AssertionError(f"there is no command `cragline {' '.join(words)}`")


@EVERY_PAGE
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in quoted_commands(page):
        if words[0] == "--help" or (page.name == "cli.md" and "[OPTIONS]" in words):
            continue
        command, rest = split_command(words)
        options = {name for parameter in command.params for name in parameter.opts if name.startswith("-")}
        used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert used <= options, f"{page.name}: cragline {' '.join(words)}"


def test_the_handbook_shows_every_command() -> None:
    shown = [words for page in PAGES if page.name not in GENERATED for words in quoted_commands(page)]
    seen = {tuple(words[:length]) for words in shown for length in (1, 2)}
    assert set(COMMANDS) - seen <= {("db", "current"), ("batch", "show"), ("batch", "watch")}


@EVERY_PAGE
def test_values_of_set_are_taken(page: Path) -> None:
    """`--set key=value` in the docs is what some pipeline takes, with local and with OpenAI models."""
    text = page.read_text(encoding="utf-8")
    for item in re.findall(r"--set (\w+=[\w.:]+)(?!\.\.)", text):
        if item.endswith(("=value", "...")):
            continue
        for provider in ("local", "openai"):
            settings, sets = Settings(_env_file=None, models=provider), parse_sets([item.rstrip(".")])
            takers = [kind for kind in PIPELINES.values() if set(sets) <= set(kind.model_fields)]
            assert takers, f"no pipeline has {item}"
            for name, kind in PIPELINES.items():
                if kind in takers:
                    make_plan(settings, name, dict(sets))


# -- variables, make targets, numbers ---------------------------------------------------------------------
@EVERY_PAGE
def test_variables_exist(page: Path) -> None:
    known = {generate.variable(name, field) for name, field in Settings.model_fields.items()}
    known |= {"CRAGLINE_TEST_DATA"}
    compose = ROOT / "docker-compose.yml"
    known |= (
        set(re.findall(r"CRAGLINE_\w+", compose.read_text(encoding="utf-8"))) if compose.exists() else set()
    )
    named = set(re.findall(r"\b(?:CRAGLINE|OPENAI|TAVILY)_[A-Z_]+\b", page.read_text(encoding="utf-8")))
    assert named <= known


@EVERY_PAGE
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"(?:`|^ {4}|^)make ([\w-]+)", text, re.MULTILINE)) <= targets


def test_numbers_in_the_prose_are_those_of_the_settings() -> None:
    settings = Settings(_env_file=None)
    operating = (DOCS / "operating.md").read_text(encoding="utf-8")
    wanted = [
        f"a lease of {settings.lease_seconds:g} seconds, and its worker renews the lease every "
        f"{settings.heartbeat_seconds:g} seconds",
        f"run out after at most {settings.lease_seconds:g} seconds",
        f"nobody has claimed for {settings.republish_seconds:g} seconds",
        f"tried at most {settings.max_attempts} times, and only",
        f"is tried at most {settings.max_attempts} times as well",
        f"about {settings.retry_base:g} second and doubles each time, up to {settings.retry_cap:g} seconds",
        f"runs {settings.worker_threads} threads",
        f"At most {settings.window} runs",
        f"is {settings.model_timeout + 5:g} seconds with the default model timeout",
    ]
    assert [words for words in wanted if words not in operating] == []
    limits = (DOCS / "limits.md").read_text(encoding="utf-8")
    assert f"at most {settings.patience_seconds / 3600:.0f} hours".replace("2", "two") in limits
    assert f"waited for {settings.web_patience_seconds:g} seconds" in limits
    started = (DOCS / "getting-started.md").read_text(encoding="utf-8")
    assert f"chunks of {settings.chunk_tokens} tokens" in started
    params = make_plan(settings, "crag").params
    pipelines = (DOCS / "pipelines.md").read_text(encoding="utf-8")
    for words in (
        f"By default {params['k']} documents are retrieved",
        f"is not above {params['ratio']:g}",
        f"has {params['sentences']} sentences by default",
        f"the default is {params['web_k']}.",
        f'"no answer within {params["max_steps"]} steps"',
    ):
        assert words in pipelines


# -- the demo's questions ----------------------------------------------------------------------------------
def test_the_demo_questions_have_what_the_demo_is_to_show() -> None:
    file = open_questions(DOCS / "demo-questions.csv")
    rows = list(file.rows())
    questions = [row.question for row in rows if row.question is not None]
    assert file.report.question_column == "question"
    assert file.report.columns == ["id", "team", "question"]
    assert len(rows) == 24
    assert len(rows) - len(questions) == 1
    assert [count for count in Counter(map(question_key, questions)).values() if count > 1] == [2]
    assert any("\n" in question for question in questions)
    assert any('"' in question for question in questions)
    assert any("," in question for question in questions)
    assert [row.notes for row in rows if row.notes] == []


def test_the_readme_tells_the_counts_of_the_demo() -> None:
    with (DOCS / "demo-questions.csv").open(encoding="utf-8", newline="") as file:
        asked = [row["question"] for row in csv.DictReader(file)]
    distinct = {question_key(question) for question in asked if question.strip()}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"answers {len(asked)} rows of questions" in readme
    assert f"Batch 1: {len(asked)} rows, {len(distinct)} questions, 1 empty" in readme


def test_the_readme_fits_its_frame() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


def test_the_licence_is_the_one_that_is_declared() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_short_word_of_an_error_is_told() -> None:
    page = (ROOT / "docs" / "control.md").read_text(encoding="utf-8")
    sources = [
        path.read_text(encoding="utf-8")
        for name in ("shared", "workers")
        for path in (ROOT / name).rglob("*.py")
    ]
    words = {word for source in sources for word in re.findall(r"\bcode=\"([a-z_]+)\"", source)}
    assert len(words) > 10
    assert {word for word in words if f"`{word}`" not in page} == set()
