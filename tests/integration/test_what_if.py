"""What-if from stored grades decides as the nodes do: the same grades and settings give the same way."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from shared import compare
from shared.errors import CraglineError, NotFound, UsageError
from shared.plan import Plan
from shared.prices import cost_usd
from shared.stack.testing import Servers
from tests.conftest import own_database
from tests.integration.runner.bench import Bench
from tests.unit.workers.nodes.fakes import Script, document, params
from workers.graphs.crag import after_decide
from workers.models.roles import CallRecorder, CallResult, CallSpec
from workers.nodes.decide import decide
from workers.nodes.resources import Resources
from workers.nodes.state import CragState

SCORES = st.one_of(st.none(), st.sampled_from([0.0, 0.3, 0.35, 0.45, 0.6, 0.7, 1.0]), st.floats(0, 1))
GRADES = st.lists(
    st.fixed_dictionaries(
        {"label": st.sampled_from(["relevant", "not_relevant", "unparsed"]), "score": SCORES}
    ),
    max_size=8,
)
RATIOS = st.sampled_from([0, 0.25, 1 / 3, 0.5, 2 / 3, 0.7, 0.75, 1])
LINES = st.tuples(SCORES, SCORES).map(lambda pair: sorted(value or 0.0 for value in pair))
SWITCH = st.sampled_from(["on", "off"])


@pytest.fixture(scope="module")
def engine(servers: Servers) -> Iterator[Engine]:
    with own_database(servers) as made:
        yield made


@pytest.fixture(scope="module")
def connection(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as made:
        yield made


# -- one decision ------------------------------------------------------------------------------------------
@settings(max_examples=250, deadline=None)
@given(
    grades=GRADES,
    rule=st.sampled_from(["ratio", "none_relevant", "confidence"]),
    ratio=RATIOS,
    lines=LINES,
    refine=SWITCH,
    web=SWITCH,
    rewrite=SWITCH,
)
def test_the_function_decides_as_the_node_does(
    connection: Connection,
    grades: list[dict[str, Any]],
    rule: str,
    ratio: float,
    lines: list[float],
    refine: str,
    web: str,
    rewrite: str,
) -> None:
    numbers = params(rule=rule, ratio=ratio, refine=refine, web_search=web, rewrite=rewrite)
    numbers |= {"lower": lines[0], "upper": lines[1]}
    graded = [{**grade, "document_id": f"d{place}"} for place, grade in enumerate(grades)]
    documents = [{"id": grade["document_id"]} for grade in graded]
    state: Any = {"grades": graded, "documents": documents, "params": numbers, "question": "q?"}
    update = decide(state, None)  # type: ignore[arg-type]
    said = connection.execute(
        text(
            "SELECT decided.decision, kept.kept, history.crag_way(:settings, decision ->> 'action', kept) AS way"
            "  FROM (SELECT history.decide(:grades, :settings) AS decision) AS decided"
            " CROSS JOIN LATERAL (SELECT count(*) AS kept FROM jsonb_array_elements(:grades) AS grade"
            "   WHERE history.crag_keeps(:settings, decision ->> 'action', grade ->> 'label',"
            "         (grade ->> 'score')::float8)) AS kept"
        ),
        {"grades": Jsonb(graded), "settings": Jsonb(numbers)},
    ).one()
    decision = {key: value for key, value in update["decision"].items() if key != "why"}
    assert said.decision == decision
    assert said.kept == len(update["knowledge"])
    assert said.way[0] == first_node({**state, **update})


def first_node(state: CragState) -> str:
    following = after_decide(state)
    return following if isinstance(following, str) else str(following[0].node)


# -- whole batches -----------------------------------------------------------------------------------------
SETTINGS: list[dict[str, Any]] = [
    {"rule": "ratio", "ratio": 0.7},
    {"rule": "ratio", "ratio": 0.25, "web_search": "off"},
    {"rule": "none_relevant"},
    {"rule": "confidence", "upper": 0.7, "lower": 0.3},
    {"rule": "confidence", "upper": 0.5, "lower": 0.2, "rewrite": "off"},
]
VERDICTS: list[dict[str, tuple[str, float | None]]] = [
    {"A": ("relevant", 0.9), "B": ("not_relevant", 0.1), "C": ("not_relevant", 0.2)},
    {"A": ("not_relevant", 0.4), "B": ("unparsed", None), "C": ("not_relevant", 0.2)},
    {"A": ("not_relevant", 0.1), "B": ("not_relevant", 0.1), "C": ("not_relevant", 0.2)},
    {"A": ("relevant", 0.6), "B": ("relevant", 0.55), "C": ("relevant", 0.9)},
]


def path_after(bench: Bench, batch: int, node: str) -> str:
    """The nodes that a batch's only run really went through after `node`."""
    found = bench.rows(
        "SELECT DISTINCT step, node FROM transitions WHERE batch_id = :b AND status = 'succeeded' ORDER BY step",
        b=batch,
    )
    nodes = [row.node for row in found]
    return " > ".join(nodes[nodes.index(node) + 1 :])


def test_what_if_says_what_another_batch_then_did(engine: Engine) -> None:
    """Each batch is asked about the settings of each other one, and the other one shows what is true."""
    web = [document("W", "From the web.", origin="web")]
    for verdicts in VERDICTS:
        bench = Bench(engine, Script([document(letter) for letter in "ABC"], verdicts, web=web))
        ran = [bench.submit(["How old?"], "crag", **sets) for sets in SETTINGS]
        bench.heal()
        for batch in ran:
            for other, sets in zip(ran, SETTINGS, strict=True):
                (row,) = compare.what_if(engine, batch, {"web_search": "on", "rewrite": "on", **sets})
                assert row["way_before"] == path_after(bench, batch, "decide")
                assert row["way_now"] == path_after(bench, other, "decide"), (verdicts, sets)
                assert row["other_way"] == (row["way_before"] != row["way_now"])


def test_documents_that_were_not_graded_are_named(engine: Engine) -> None:
    script = Script([document(letter) for letter in "ABC"], dict.fromkeys("ABC", ("relevant", 0.9)))
    bench = Bench(engine, script)
    batch = bench.submit(["How old?"], "crag", enough_relevant=1)
    bench.heal()
    (row,) = compare.what_if(engine, batch, {"rule": "none_relevant"})
    assert row["not_known"] == ["2 documents were not graded: enough were relevant before"]
    assert (row["relevant_before"], row["other_way"]) == (1, False)


@pytest.mark.parametrize(
    ("pipeline", "sets", "onward", "without"),
    [
        ("self_rag", {}, "generate", "rewrite_query"),
        ("self_rag", {"max_rewrites": 0}, "generate", "give_up"),
        ("adaptive", {}, "extract_knowledge", "feedback_on_query"),
        ("adaptive", {"max_retrievals": 1}, "extract_knowledge", "switch_to_web"),
        ("adaptive", {"max_retrievals": 1, "web_search": "off"}, "extract_knowledge", "apologise"),
    ],
)
def test_the_first_round_of_the_pipelines_that_judge_themselves(
    engine: Engine, pipeline: str, sets: dict[str, Any], onward: str, without: str
) -> None:
    bench = Bench(engine, Script([document("A")], {"A": ("relevant", 0.5)}), models="local")
    batch = bench.submit(["How old?"], pipeline, relevant_at=0.45, **sets)
    bench.heal()
    assert path_after(bench, batch, "select").split(" > ")[0] == onward
    (row,) = compare.what_if(engine, batch, {"relevant_at": "0.55"})
    assert (row["way_before"], row["way_now"], row["other_way"]) == (onward, without, True)
    assert (row["relevant_before"], row["relevant_now"], row["cost_change_usd"]) == (1, 0, None)
    assert row["rests_on"] == "no run of this batch went that way"
    assert "what the loops after the first round of grading would have done" in row["not_known"]


# -- money -------------------------------------------------------------------------------------------------
TOKENS = {
    "one?": {"web_search": 1000, "rewrite_query": 200},
    "two?": {"web_search": 3000, "rewrite_query": 400},
}


def call(question: str) -> CallSpec:
    return CallSpec("query_rewriter", "openai", "gpt-4.1-mini", "v", {"question": question})


class Paying(Bench):
    """Three questions, of which the third finds its document relevant; the others pay for a web search."""

    def make(self, plan: Plan, recorder: CallRecorder) -> Resources:
        won = recorder._won  # type: ignore[attr-defined]
        tokens = TOKENS.get(won.question, {}).get(won.node)
        if tokens is not None:
            recorder.call(call(won.question), lambda: CallResult("x", tokens, 0))
        self.script.verdicts = {"A": ("relevant", 0.9) if won.question == "three?" else ("not_relevant", 0.2)}
        return self.script.resources()


def price(tokens: int) -> float:
    cost = cost_usd("gpt-4.1-mini", tokens, 0)
    assert cost
    return cost


def test_the_estimate_rests_on_what_the_batch_itself_paid(engine: Engine) -> None:
    """Two questions searched the web and one did not: searching costs the third what it cost the two."""
    bench = Paying(engine, Script([document("A")], web=[document("W", origin="web")]))
    batch = bench.submit(["one?", "two?", "three?"], "crag", rule="none_relevant")
    bench.heal()
    rows = {row["question"]: row for row in compare.what_if(engine, batch, {"rule": "ratio:1"})}
    assert not rows["one?"]["other_way"] and rows["one?"]["cost_change_usd"] == 0
    third = rows["three?"]
    assert third["way_now"] == "rewrite_query > web_search > generate"
    assert float(third["cost_change_usd"]) == pytest.approx(price(2000) + price(300))
    assert third["rests_on"] == "+ rewrite_query: mean of 2 runs; + web_search: mean of 2 runs"
    assert third["not_known"] == ["what the web search would have found"]
    saved = {row["question"]: row for row in compare.what_if(engine, batch, {"web_search": "off"})}
    assert saved["two?"]["way_now"] == "give_up"
    assert float(saved["two?"]["cost_change_usd"]) == pytest.approx(-price(3400))
    told = compare.summary(list(saved.values()))
    assert (told["runs"], told["other_way"]) == (3, 2)
    assert float(told["cost_change_usd"]) == pytest.approx(-price(4600))


def test_a_node_that_never_ran_gives_no_estimate(engine: Engine) -> None:
    bench = Bench(engine, Script([document("A")], {"A": ("relevant", 0.9)}))
    batch = bench.submit(["How old?"], "crag", rule="none_relevant")
    bench.heal()
    (row,) = compare.what_if(engine, batch, {"rule": "ratio:1"})
    assert row["cost_change_usd"] is None
    assert (
        row["rests_on"] == "+ rewrite_query: never run in this batch; + web_search: never run in this batch"
    )
    assert compare.summary([row])["cost_change_usd"] is None


# -- what cannot be asked ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pipeline", "sets", "said"),
    [
        ("crag", {"k": "5"}, "Stored grades cannot tell what k would have done. They can for: rule,"),
        ("crag", {"upper": "0.2", "lower": "0.5"}, "must not be above upper"),
        ("crag", {"upper": "x"}, "--set upper=x"),
        ("crag", {"nonsense": "1"}, "crag has no setting 'nonsense'"),
        ("crag", {"relevant_at": "0.6"}, "relevant_at draws the line for local models only"),
        ("self_rag", {"max_rewrites": "1"}, "Stored grades cannot tell what max_rewrites would have done"),
        ("rag", {"sentences": "1"}, "grades no documents"),
    ],
)
def test_what_grades_cannot_tell_is_refused(
    engine: Engine, pipeline: str, sets: dict[str, Any], said: str
) -> None:
    batch = Bench(engine).submit(["How old?"], pipeline)
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        compare.what_if(engine, batch, sets)


@pytest.mark.parametrize(
    "odd",
    [
        {"rule": None},
        {"rule": "ratio:2"},
        {"rule": "ratio:x"},
        {"refine": "auto"},
        {"refine": "ON"},
        {"web_search": True},
        {"ratio": None},
        {"ratio": "abc"},
        {"ratio": 1.5},
        {"upper": [0.5]},
    ],
    ids=str,
)
def test_the_function_refuses_what_a_pipeline_would_not_take(engine: Engine, odd: dict[str, Any]) -> None:
    """Asked in SQL nobody checks the values before; taken for `off` or for another rule they would mislead."""
    batch = Bench(engine).submit(["How old?"], "crag")
    with engine.connect() as connection, pytest.raises(DBAPIError, match="InvalidParameterValue"):
        connection.execute(text("SELECT * FROM history.what_if(:b, :s)"), {"b": batch, "s": Jsonb(odd)})


def test_a_batch_that_is_not_there(engine: Engine) -> None:
    with pytest.raises(NotFound):
        compare.what_if(engine, 999_999, {"rule": "ratio"})
    with pytest.raises(CraglineError):
        list(compare.batch_diff(engine, 999_999, 1))
