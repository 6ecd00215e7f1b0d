"""Router, extractor, feedback and apology, and the tries after the first, against a scripted server."""

from collections.abc import Callable
from typing import Any

import pytest

from shared.errors import PermanentError
from tests.fakes.openai_server import (
    FakeOpenAI,
    answer_of,
    bad_tool_call,
    content,
    feedback_of,
    prose,
    refusal,
    sequence,
)
from tests.unit.workers.models.conftest import document, settings_for
from workers.models.calls import MemoryRecorder, UnusableOutput
from workers.models.openai import OpenAIAnswerGenerator, OpenAIQueryRewriter
from workers.models.openai_client import Method
from workers.models.openai_reflection import (
    OpenAIApologyWriter,
    OpenAIFeedbackWriter,
    OpenAIKnowledgeExtractor,
    OpenAIRouter,
)
from workers.models.prompts import load_prompts

Serve = Callable[..., FakeOpenAI]
Act = Callable[[FakeOpenAI, MemoryRecorder, Method], Any]
METHODS: list[Method] = ["json_schema", "function_calling", "json_mode"]
QUESTION = "Which river flows through Leiden?"
RHINE = document("The Oude Rijn flows through Leiden. It is a river.")
MODEL = "gpt-4.1-mini"


def route(
    fake: FakeOpenAI, recorder: MemoryRecorder, method: Method = "json_schema", web: bool = True
) -> str:
    return OpenAIRouter(settings_for(fake, method), MODEL, recorder).route(QUESTION, "Dutch rivers", web)


def extract(fake: FakeOpenAI, recorder: MemoryRecorder, method: Method = "json_schema") -> list[str]:
    return OpenAIKnowledgeExtractor(settings_for(fake, method), MODEL, recorder).extract(QUESTION, RHINE)


def on_query(fake: FakeOpenAI, recorder: MemoryRecorder, method: Method = "json_schema") -> str:
    writer = OpenAIFeedbackWriter(settings_for(fake, method), MODEL, recorder)
    return writer.on_query(QUESTION, "leiden river", "vectorstore")


def on_answer(fake: FakeOpenAI, recorder: MemoryRecorder, method: Method = "json_schema") -> str:
    writer = OpenAIFeedbackWriter(settings_for(fake, method), MODEL, recorder)
    return writer.on_answer(QUESTION, "The Rhine, perhaps.", "not_grounded")


def apologise(fake: FakeOpenAI, recorder: MemoryRecorder, method: Method = "json_schema") -> str:
    writer = OpenAIApologyWriter(settings_for(fake, method), MODEL, recorder)
    return writer.apologise(QUESTION, ["the store, 3 times", "", "the web\nonce"])


def directly(fake: FakeOpenAI, recorder: MemoryRecorder, method: Method = "json_schema") -> str:
    return generator(fake, recorder, method).answer_directly(QUESTION).text


def generator(
    fake: FakeOpenAI, recorder: MemoryRecorder, method: Method = "json_schema"
) -> OpenAIAnswerGenerator:
    return OpenAIAnswerGenerator(settings_for(fake, method), MODEL, recorder, sentences=3)


def rewriter(fake: FakeOpenAI, recorder: MemoryRecorder) -> OpenAIQueryRewriter:
    return OpenAIQueryRewriter(settings_for(fake), MODEL, recorder)


# role, prompt, what it is asked, the default script's answer, the key it must have
CASES: list[tuple[str, str, Act, Any, str]] = [
    ("router", "router", route, "vectorstore", "route"),
    (
        "knowledge_extractor",
        "knowledge_extractor",
        extract,
        ["The Oude Rijn flows through Leiden."],
        "passages",
    ),
    ("feedback_writer", "feedback_writer.on_query", on_query, "try other words", "feedback"),
    ("feedback_writer", "feedback_writer.on_answer", on_answer, "try other words", "feedback"),
    ("apology_writer", "apology_writer", apologise, f"Sorry: no answer was found to {QUESTION}", "apology"),
    ("answer_generator", "answer_generator.direct", directly, f"Directly: {QUESTION}", "answer"),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("role", "prompt", "act", "expected", "_key"), CASES)
def test_each_role_works_in_each_method(
    serve: Serve,
    recorder: MemoryRecorder,
    role: str,
    prompt: str,
    act: Act,
    expected: Any,
    _key: str,
    method: Method,
) -> None:
    fake = serve()
    assert act(fake, recorder, method) == expected
    assert fake.counts == {role: 1}
    (record,) = recorder.records
    assert (record.spec.role, record.spec.prompt_version) == (role, load_prompts()[prompt].version)
    assert (record.input_tokens, record.output_tokens) == (100, 10)
    if method == "json_schema":
        schema = fake.requests[0].payload["response_format"]["json_schema"]
        assert schema["strict"] is True and schema["schema"]["additionalProperties"] is False
        assert sorted(schema["schema"]["required"]) == sorted(schema["schema"]["properties"])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("_role", "_prompt", "act", "_expected", "key"), CASES)
def test_what_is_no_answer_is_worth_another_try(
    serve: Serve,
    recorder: MemoryRecorder,
    _role: str,
    _prompt: str,
    act: Act,
    _expected: Any,
    key: str,
    method: Method,
) -> None:
    useless = [
        prose("Here you are, enjoy"),
        prose(""),
        content({"other": 1}),
        content({key: None}),
        content({key: 7}),
        content({key: ""} if key != "passages" else {key: {"a": "b"}}),
        prose(f'{{"{key}": "half'),
        bad_tool_call(f'{{"{key}": '),
    ]
    for reply in useless:
        with pytest.raises(UnusableOutput) as caught:
            act(serve(sequence(reply)), recorder, method)
        assert caught.value.code == "unusable_output" and caught.value.transient
    with pytest.raises(UnusableOutput) as caught:
        act(serve(sequence(prose(f'{{"{key}": "half', finish_reason="length"))), recorder, method)
    assert caught.value.code == "truncated"
    with pytest.raises(PermanentError) as refused:
        act(serve(sequence(refusal())), recorder, method)
    assert refused.value.code == "refused_by_policy"
    # Stored as errors, so that the next try does not reuse them, and with what they cost.
    assert all(not record.ok and record.response is None for record in recorder.records)
    assert all(record.input_tokens == 100 for record in recorder.records[:-1])


# -- the router ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "read"), [("websearch", "websearch"), (" Direct. ", "direct"), ("`VECTORSTORE`", "vectorstore")]
)
def test_routes(serve: Serve, recorder: MemoryRecorder, word: str, read: str) -> None:
    assert route(serve(sequence(content({"route": word}))), recorder) == read


@pytest.mark.parametrize("word", ["vectorsearch", "web", "", "vectorstore or websearch"])
def test_an_unknown_route_is_unusable(serve: Serve, recorder: MemoryRecorder, word: str) -> None:
    """`vectorsearch` above all: a graph that takes it for a route never falls over to the web."""
    with pytest.raises(UnusableOutput):
        route(serve(sequence(content({"route": word}))), recorder)


def test_the_web_is_no_route_where_it_is_off(serve: Serve, recorder: MemoryRecorder) -> None:
    fake = serve(sequence(content({"route": "websearch"})))
    with pytest.raises(UnusableOutput, match="off"):
        route(fake, recorder, web=False)
    route(fake, recorder, web=True)
    off, on = (request.payload["messages"][0]["content"] for request in fake.requests)
    assert "cannot be searched" in off and "cannot be searched" not in on
    assert "Dutch rivers" in fake.requests[0].payload["messages"][1]["content"]


# -- the extractor -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        ([], []),
        ([" one. ", "two.", "one."], ["one.", "two."]),
        ("one.", ["one."]),
        (["one.", 2, None, {"a": 1}, " "], ["one."]),
        ([f"{number}." for number in range(99)], [f"{number}." for number in range(20)]),
        (["a\x00b"], ["a\ufffdb"]),
    ],
)
def test_passages(serve: Serve, recorder: MemoryRecorder, stated: Any, read: list[str]) -> None:
    assert extract(serve(sequence(content({"passages": stated}))), recorder) == read


# -- feedback and apology ------------------------------------------------------------------------------


def test_feedback_sees_the_query_or_the_answer(serve: Serve, recorder: MemoryRecorder) -> None:
    fake = serve(sequence(content({"feedback": "a\n" + "b" * 5000})))
    assert len(on_query(fake, recorder)) == 1000
    on_answer(fake, recorder)
    query, answer = (request.payload for request in fake.requests)
    assert '<query target="vectorstore">\nleiden river\n</query>' in query["messages"][1]["content"]
    assert answer_of(answer) == "The Rhine, perhaps."
    assert '<answer problem="not_grounded">' in answer["messages"][1]["content"]


def test_the_apology_sees_what_was_tried(serve: Serve, recorder: MemoryRecorder) -> None:
    fake = serve()
    apologise(fake, recorder)
    OpenAIApologyWriter(settings_for(fake), MODEL, recorder).apologise(QUESTION, [])
    some, none = (request.payload["messages"][1]["content"] for request in fake.requests)
    assert "<tried>\n- the store, 3 times\n- the web once\n</tried>" in some
    assert "<tried>\n- nothing\n</tried>" in none


# -- tries after the first -----------------------------------------------------------------------------


def test_the_first_query_for_the_web_is_asked_for_as_before(serve: Serve, recorder: MemoryRecorder) -> None:
    fake = serve()
    role = rewriter(fake, recorder)
    assert role.rewrite(QUESTION) == role.rewrite(QUESTION, "websearch", "unused", [" "])
    first, second = (record.spec for record in recorder.records)
    assert first == second
    assert first.prompt_version == load_prompts()["query_rewriter"].version


def test_feedback_and_description_reach_the_model_only_when_given(
    serve: Serve, recorder: MemoryRecorder
) -> None:
    fake = serve()
    role = rewriter(fake, recorder)
    assert role.rewrite(QUESTION, feedback=["a\nb", "c"]) == f"web: {QUESTION}"
    assert role.rewrite(QUESTION, "vectorstore", "Dutch rivers") == f"store: {QUESTION}"
    role.rewrite(QUESTION, "vectorstore", "", ["no"])
    payloads = [request.payload for request in fake.requests]
    assert [feedback_of(payload) for payload in payloads] == [["a b", "c"], [], ["no"]]
    texts = [payload["messages"][1]["content"] for payload in payloads]
    assert "<description>\nDutch rivers\n</description>" in texts[1] and "(none given)" in texts[2]
    names = ["query_rewriter.again", "query_rewriter.vectorstore", "query_rewriter.vectorstore"]
    versions = [record.spec.prompt_version for record in recorder.records]
    assert versions == [load_prompts()[name].version for name in names]
    assert {record.spec.role for record in recorder.records} == {"query_rewriter"}


def test_another_answer_sees_the_feedback(serve: Serve, recorder: MemoryRecorder) -> None:
    fake = serve()
    answer = generator(fake, recorder).answer(QUESTION, [RHINE], ["the year is wrong"])
    assert answer.cited == (0,)
    assert feedback_of(fake.requests[0].payload) == ["the year is wrong"]
    assert recorder.records[0].spec.prompt_version == load_prompts()["answer_generator.again"].version


def test_a_direct_answer_cites_nothing_or_says_why_not(serve: Serve, recorder: MemoryRecorder) -> None:
    fake = serve(
        sequence(
            content({"answerable": True, "answer": "Four [1]."}),
            content({"answerable": False, "answer": "x"}),
        )
    )
    role = generator(fake, recorder)
    four, none = role.answer_directly("2 + 2?"), role.answer_directly("Who won?")
    assert (four.text, four.cited, four.why_not) == ("Four.", (), "")
    assert (none.text, none.cited) == ("", ()) and "without sources" in none.why_not


def test_only_the_last_remarks_are_shown_and_stay_data(serve: Serve, recorder: MemoryRecorder) -> None:
    fake = serve()
    remarks = [f"remark {number} </feedback> {{question}} " + "x" * 5_000 for number in range(9)]
    rewriter(fake, recorder).rewrite(QUESTION, feedback=remarks)
    human = fake.requests[0].payload["messages"][1]["content"]
    shown = feedback_of(fake.requests[0].payload)
    assert [remark[:8] for remark in shown] == [f"remark {number}" for number in range(4, 9)]
    assert human.count("</feedback>") == 1 and "{question}" in human and len(human) < 7_000
