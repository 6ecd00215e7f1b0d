"""Looking at what happened: batch, results, run, sql, graph, ask, doctor, db."""

import csv
import io
import json
from typing import Any

import pytest

from tests.e2e.home import Home

QUESTIONS = "ref;Question\nA-1;When is the service desk open?\nA-2;\nA-3;What is the capital of Mongolia?\n"
COUNTS = {"rows": 3, "empty_rows": 1, "duplicate_rows": 0, "submitted": 2, "open": 0}
COUNTS |= {"pending": 0, "running": 0, "answered": 1, "gave_up": 1, "failed": 0, "cancelled": 0}


@pytest.fixture(scope="module")
def batch(knowledge: Home) -> dict[str, Any]:
    return knowledge.submit(knowledge.write("three.csv", QUESTIONS))


def test_watch_prints_one_object_when_the_batch_has_ended(knowledge: Home, batch: dict[str, Any]) -> None:
    assert {name: batch[name] for name in COUNTS} == COUNTS
    assert (batch["status"], batch["name"], batch["pipeline"]) == ("ended", "three.csv", "crag")
    assert batch["ended_at"] > batch["submitted_at"]
    again = knowledge.run("batch", "watch", batch["batch_id"], "--json")
    assert again.err == ""
    of_submit = ("question_column", "preflight")
    assert again.value == {key: value for key, value in batch.items() if key not in of_submit}


def test_watch_in_words(knowledge: Home, batch: dict[str, Any]) -> None:
    done = knowledge.run("batch", "watch", batch["batch_id"])
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Batch {batch['batch_id']} has ended: 1 answered, 1 gave up; ")
    assert done.out.count("\n") == 1


def test_submit_and_watch_in_words(knowledge: Home) -> None:
    done = knowledge.run("submit", knowledge.write("one.txt", "When is the service desk open?\n"), "--watch")
    assert (done.code, done.err) == (0, "")
    assert " has ended: 1 answered; " in done.out.splitlines()[-1]


def test_list_and_show(knowledge: Home, batch: dict[str, Any]) -> None:
    listed = knowledge.run("batch", "list", "--json").value
    numbers = [row["batch_id"] for row in listed]
    assert numbers == sorted(numbers, reverse=True)
    row = next(row for row in listed if row["batch_id"] == batch["batch_id"])
    assert {name: row[name] for name in COUNTS} == COUNTS
    assert len(knowledge.run("batch", "list", "--limit", "1", "--json").value) == 1

    shown = knowledge.run("batch", "show", batch["batch_id"], "--json").value
    assert {name: shown[name] for name in COUNTS} == COUNTS
    assert shown["plan"]["params"]["web_search"] == "off"
    assert (shown["source"]["encoding"], shown["source"]["delimiter"]) == ("utf-8", ";")
    assert "three.csv" in knowledge.run("batch", "list").out
    text = knowledge.run("batch", "show", batch["batch_id"]).out
    assert "question_column  Question" in text
    assert "relevant_at" in text


def test_results_on_the_screen_and_in_files(knowledge: Home, batch: dict[str, Any]) -> None:
    number = batch["batch_id"]
    screen = knowledge.run("results", number)
    assert (screen.code, screen.err) == (0, "")
    found = list(csv.DictReader(io.StringIO(screen.out, newline="")))
    assert [row["ref"] for row in found] == ["A-1", "A-2", "A-3"]
    assert [row["disposition"] for row in found] == ["answered", "empty", "gave_up"]
    assert "9 am to 5 pm" in found[0]["answer"]
    assert "Opening hours" in found[0]["sources"]
    assert found[2]["reason"] == "none of the 4 retrieved documents was relevant and web search is off"
    assert [row["run_id"] != "" for row in found] == [True, False, True]

    for name, encoding in (("out.csv", "utf-8-sig"), ("out.jsonl", "utf-8")):
        done = knowledge.run("results", number, "-o", name)
        assert (done.code, done.out, done.err) == (0, "", f"3 rows written to {name}.\n")
        with (knowledge.folder / name).open(encoding=encoding, newline="") as file:
            written = file.read()
        if name == "out.csv":
            assert written == screen.out
        else:
            assert [json.loads(line) for line in written.splitlines()] == knowledge.results(number)
    assert knowledge.results(number)[0]["sources"][0]["title"] == "Opening hours"


WRONG: list[tuple[list[str], int, str]] = [
    (["results", "9999"], 1, "There is no batch 9999. `cragline batch list` shows those there are."),
    (["batch", "show", "9999"], 1, "There is no batch 9999."),
    (["run", "show", "9999999"], 1, "There is no run 9999999."),
    (["batch", "show", str(2**70)], 1, "There is no batch"),
    (["results", "1", "-o", "out.ods"], 2, "out.ods: results are written as "),
    (["sql", "delete from runs"], 1, "Only queries can be asked here"),
    (["sql", "with x as (delete from runs returning 1) table x"], 1, "Postgres says: permission denied"),
    (["sql", "select 1; select 2"], 1, "Postgres says: cannot insert multiple commands"),
    (["sql", "select selec from"], 1, "Postgres says: syntax error"),
    (["sql", "select * from nope"], 1, "docs/history.md lists the views"),
    (["sql", "select pg_read_file('/etc/passwd')"], 1, "Postgres says: permission denied"),
    (["sql", "copy runs to stdout"], 1, "Only queries can be asked here"),
    (["sql", " ; "], 2, "The query is empty."),
    (["ask", "  "], 2, "The question is empty."),
    (["ask", "Who?", "-c", "nope"], 1, "There is no collection 'nope'."),
]


def test_errors(knowledge: Home) -> None:
    done = knowledge.run_all([words for words, _, _ in WRONG])
    for (_, code, expected), one in zip(WRONG, done, strict=True):
        assert expected in one.error(code)


def test_run_show(knowledge: Home, batch: dict[str, Any]) -> None:
    run = knowledge.results(batch["batch_id"])[0]["run_id"]
    shown = knowledge.run("run", "show", run, "--json").value
    assert (shown["question"], shown["rows"]) == ("When is the service desk open?", [1])
    assert shown["open"] == []
    steps = [(step["step"], step["branch"], step["attempt"], step["node"]) for step in shown["timeline"]]
    grading = [(2, branch, 1, "grade_document") for branch in range(4)]
    assert steps == [(1, 0, 1, "retrieve"), *grading, (3, 0, 1, "decide"), (4, 0, 1, "generate")]
    assert shown["timeline"][0]["goes_to"] == ["grade_document"] * 4
    assert all(step["duration_ms"] > 0 for step in shown["timeline"])
    assert shown["timeline"][1]["grade"] == "relevant"

    text = knowledge.run("run", "show", run).out
    for words in (
        "grade_document x4",
        "relevant 0.",
        "not_relevant 0.",
        "desk.md",
        "__end__",
        "1 of 4 relevant",
    ):
        assert words in text
    assert max(map(len, text.splitlines())) <= 200


def test_sql(knowledge: Home, batch: dict[str, Any]) -> None:
    query = f"select node, attempts from node_stats where batch_id = {batch['batch_id']} order by node"
    expected = [("decide", 2), ("generate", 1), ("give_up", 1), ("grade_document", 8), ("retrieve", 2)]
    assert knowledge.run("sql", query, "--json").value == [
        {"node": node, "attempts": count} for node, count in expected
    ]
    lines = knowledge.run("sql", query, "--csv").out.splitlines()
    assert lines == ["node,attempts", *(f"{node},{count}" for node, count in expected)]
    table = knowledge.run("sql", query)
    assert (table.code, table.err) == (0, "")
    assert table.out.rstrip().endswith("5 rows")
    assert [line.split() for line in table.out.splitlines() if "grade_document" in line] == [
        ["grade_document", "8"]
    ]
    assert knowledge.run("sql", "-", "--csv", stdin="select 1 as one;\n").out.splitlines() == ["one", "1"]
    knowledge.write("query.sql", "-- a comment\nselect 2 as two")
    assert knowledge.run("sql", "--file", "query.sql", "--json").value == [{"two": 2}]


def test_sql_shows_every_kind_of_value(knowledge: Home) -> None:
    query = (
        "select null as a, true as a, '{\"k\": [1]}'::jsonb as j, 'NaN'::float8 as n, 'a,\"b' as t, 0.50 as d"
    )
    assert knowledge.run("sql", query, "--json").value == [
        {"a": None, "a_2": True, "j": {"k": [1]}, "n": "nan", "t": 'a,"b', "d": 0.5}
    ]
    header, row = csv.reader(io.StringIO(knowledge.run("sql", query, "--csv").out, newline=""))
    assert header == ["a", "a", "j", "n", "t", "d"]
    assert row == ["", "true", '{"k": [1]}', "nan", 'a,"b', "0.5"]


def test_output_that_the_terminal_cannot_encode(knowledge: Home) -> None:
    done = knowledge.run("sql", "select 'Größe' as word", "--csv", PYTHONIOENCODING="ascii")
    assert (done.code, done.out.splitlines()) == (0, ["word", "Größe"])


def test_graph_draws_the_compiled_graph(stack: Home) -> None:
    done = stack.run("graph", "crag")
    assert (done.code, done.err) == (0, "")
    assert "graph TD;" in done.out
    assert "grade_document --> decide;" in done.out


def test_ask_streams_the_nodes_and_then_the_answer(knowledge: Home) -> None:
    done = knowledge.run("ask", "When is the service desk open?")
    assert (done.code, done.err) == (0, "")
    steps, answer = done.out.split("\n\n")
    assert [line.split(":")[0] for line in steps.splitlines()] == (
        ["retrieve"] + ["grade_document"] * 4 + ["decide", "generate"]
    )
    assert "9 am to 5 pm" in answer.splitlines()[0]
    assert answer.splitlines()[1].startswith("1. Opening hours")


def test_ask_json_leaves_no_trace_in_the_history(knowledge: Home, batch: dict[str, Any]) -> None:
    count = "select count(*) as n from runs"
    before = knowledge.run("sql", count, "--json").value
    state = knowledge.run("ask", "How many parking places are there?", "--pipeline", "rag", "--json").value
    assert (state["disposition"], state["sources"][0]["title"]) == ("answered", "parking")
    assert knowledge.run("sql", count, "--json").value == before


def test_doctor(knowledge: Home) -> None:
    done = knowledge.run("doctor", "--json")
    levels = {(finding["what"], finding["level"]) for finding in done.value}
    assert {
        ("stack", "ok"),
        ("database", "ok"),
        ("redis", "ok"),
        ("workers", "ok"),
        ("schema", "ok"),
    } <= levels
    assert not [what for what, level in levels if level == "bad"]
    text = knowledge.run("doctor")
    assert text.code == 0
    assert "default: 5 documents" in text.out
    assert not [secret for secret in knowledge.secrets().values() if secret in text.out + done.out]


def test_db(knowledge: Home) -> None:
    current, upgrade = knowledge.run("db", "current"), knowledge.run("db", "upgrade")
    assert (current.code, upgrade.code) == (0, 0)
    assert current.out.endswith(" (head)\n")
    revision = current.out.removesuffix(" (head)\n")
    assert upgrade.out == f"The schema is at {revision} already.\n"


def test_version_and_help(stack: Home) -> None:
    version, help_, nothing = stack.run_all([["--version"], ["submit", "--help"], []])
    assert (version.code, version.err) == (help_.code, help_.err) == (0, "")
    assert version.out.startswith("cragline 0.")
    assert "Usage: cragline submit" in help_.out
    assert nothing.code == 2
