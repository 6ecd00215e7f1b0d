"""The ways through all graphs, and the scripted servers' parts in them."""

import re
from typing import Any

from tests.fakes import openai_server, tavily_server
from tests.fakes.http_fake import Reply
from tests.integration.judged_scenarios import ADAPTIVE, SELF_RAG
from tests.integration.scenario import DOCUMENTS, GRADE, MIDDLE, NONE, ODD, REFINE, SOME, YES, Scenario

WEB = ["rewrite_query", "web_search"]
OFF = {"web_search": "off"}
CONFIDENCE = {"rule": "confidence"}

SCENARIOS = [
    # -- ratio -----------------------------------------------------------------------------------------
    Scenario("all_relevant", [*GRADE, "generate"], "answered"),
    Scenario("some_relevant", [*GRADE, *WEB, "generate"], "answered", SOME),
    Scenario("none_relevant", [*GRADE, *WEB, "generate"], "answered", NONE),
    Scenario(
        "web_empty", [*GRADE, *WEB, "give_up"], "gave_up", NONE, web="empty", notes=("web_search_empty",),
        reason="none of the 3 retrieved documents was relevant and the web search found nothing",
    ),
    Scenario(
        "web_forbidden", [*GRADE, *WEB, "give_up"], "gave_up", NONE, web="forbidden", notes=("web_search_failed",),
        reason="none of the 3 retrieved documents was relevant and the web search failed (quota)",
    ),
    Scenario("web_busy", [*GRADE, *WEB, "generate"], "answered", SOME, web="busy", notes=("web_search_failed",)),
    Scenario(
        "web_off_none", [*GRADE, "give_up"], "gave_up", NONE, OFF, notes=("web_search_off",),
        reason="none of the 3 retrieved documents was relevant and web search is off",
    ),
    Scenario("web_off_some", [*GRADE, "generate"], "answered", SOME, OFF, notes=("web_search_off",)),
    Scenario("no_rewrite", [*GRADE, "web_search", "generate"], "answered", NONE, {"rewrite": "off"}),
    Scenario("ratio_low", [*GRADE, "generate"], "answered", SOME, {"rule": "ratio:0.3"}),
    Scenario(
        "odd_grade", [*GRADE, *WEB, "generate"], "answered", ODD, notes=("grade_unparsed",),
    ),
    Scenario(
        "not_answerable", [*GRADE, "generate"], "gave_up", answerable=False,
        reason="the documents do not say, the model found",
    ),
    Scenario("refined", [*GRADE, *["refine_document*3", "recompose"], "generate"], "answered", YES, {"refine": "on"}),
    Scenario(
        "refined_away", [*GRADE, "refine_document*3", "recompose", *WEB, "generate"], "answered", YES,
        {"refine": "on"}, strips="no",
    ),
    Scenario(
        "refined_away_off", [*GRADE, "refine_document*3", "recompose", "give_up"], "gave_up", YES,
        {"refine": "on", **OFF}, strips="no",
        reason="no part of the 3 retrieved documents was relevant and web search is off",
    ),
    Scenario(
        "refined_no_rewrite", [*GRADE, *REFINE, "web_search", "generate"], "answered", SOME,
        {"refine": "on", "rewrite": "off"},
    ),
    # -- none_relevant ---------------------------------------------------------------------------------
    Scenario("none_rule_some", [*GRADE, "generate"], "answered", SOME, {"rule": "none_relevant"}),
    Scenario("none_rule_none", [*GRADE, *WEB, "generate"], "answered", NONE, {"rule": "none_relevant"}),
    # -- confidence ------------------------------------------------------------------------------------
    Scenario("correct", [*GRADE, "refine_document", "recompose", "generate"], "answered", SOME, CONFIDENCE),
    Scenario("incorrect", [*GRADE, *WEB, "generate"], "answered", NONE, CONFIDENCE),
    Scenario(
        "ambiguous", [*GRADE, "refine_document*2", "recompose", *WEB, "generate"], "answered", MIDDLE, CONFIDENCE
    ),
    # -- nothing retrieved -----------------------------------------------------------------------------
    Scenario("nothing_web", ["retrieve", "decide", *WEB, "generate"], "answered", collection="hollow"),
    Scenario(
        "nothing_off", ["retrieve", "decide", "give_up"], "gave_up", params=OFF, collection="hollow",
        notes=("web_search_off",), reason="no document was retrieved and web search is off",
    ),
    # -- retrieval modes: the rest is pinned to `dense`, which always finds all three documents --------
    Scenario("sparse", [*GRADE, "generate"], "answered", YES, {"retrieval": "sparse"}),
    Scenario("hybrid", [*GRADE, "generate"], "answered", YES, {"retrieval": "hybrid"}),
    Scenario("rag_hybrid", ["retrieve", "generate"], "answered", params={"retrieval": "hybrid"}, pipeline="rag"),
    Scenario(
        "filtered", ["retrieve", "grade_document", "decide", "generate"], "answered", SOME,
        {"retrieval": "hybrid", "filter": ["title=Doc A"]},
    ),
    Scenario(
        "filtered_away", ["retrieve", "decide", "give_up"], "gave_up", YES, {"filter": ["title=Doc X"], **OFF},
        notes=("filter_matched_nothing", "web_search_off"),
        reason="no document that matches title=Doc X was retrieved and web search is off",
    ),
    # -- rag -------------------------------------------------------------------------------------------
    Scenario("rag", ["retrieve", "generate"], "answered", pipeline="rag"),
    Scenario(
        "rag_nothing", ["retrieve", "give_up"], "gave_up", pipeline="rag", collection="hollow",
        reason="no document was retrieved",
    ),
]  # fmt: skip
SCENARIOS += SELF_RAG + ADAPTIVE
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


# -- the scripted servers' parts ------------------------------------------------------------------------


def _scenario_in(text: str) -> Scenario | None:
    for name in re.findall(r"\[([a-z_]+)\]", text):
        if name in BY_NAME:
            return BY_NAME[name]
    return None


def chat_script(role: str, payload: dict[str, Any]) -> Reply:
    """What a model says in the scenario that is named in the request; the default where none is."""
    human = str(payload["messages"][-1]["content"])
    scenario = _scenario_in(human)
    if scenario is None:
        return openai_server.default_script(role, payload)
    if role == "relevance_grader":
        return _grade(scenario, openai_server.documents_of(payload)[0])
    if role == "query_rewriter" and scenario.rewrite and "<feedback" in human:
        return openai_server.content({"query": scenario.rewrite})
    if role == "router":
        return openai_server.content({"route": scenario.route})
    if role == "answer_generator":
        return _answer(scenario, human, payload)
    if role == "groundedness_grader" and scenario.ungrounded:
        return _check(scenario.ungrounded not in human, "unsupported")
    if role == "answer_grader" and scenario.useless:
        return _check(scenario.useless not in human, "missing")
    if role == "knowledge_extractor" and scenario.extracts != "verbatim":
        invented = ["This sentence was made up."] if scenario.extracts == "invented" else []
        return openai_server.content({"passages": invented})
    return openai_server.default_script(role, payload)


def _grade(scenario: Scenario, text: str) -> Reply:
    letter = next((title[-1] for title, whole in DOCUMENTS.items() if whole in text), None)
    if letter is None:  # a strip, or a page of the web
        score = 0.9 if scenario.strips == "yes" else 0.1
        return openai_server.content({"binary_score": scenario.strips, "score": score})
    verdict, score_of = scenario.grades[letter]
    if verdict == "perhaps":
        return openai_server.prose("It depends on how one looks at it.")
    return openai_server.content({"binary_score": verdict, "score": score_of})


def _answer(scenario: Scenario, human: str, payload: dict[str, Any]) -> Reply:
    """`draft N`, where N counts the feedback that the request brings, so that a second try differs."""
    if "<document " not in human:
        answer = f"directly [{scenario.name}]" if scenario.direct else ""
        return openai_server.content({"answerable": scenario.direct, "answer": answer})
    if not scenario.answerable:
        return openai_server.content({"answerable": False, "answer": "", "cited": []})
    number = 1 + len(re.findall("An earlier answer was not supported|try other words", human))
    first = openai_server.documents_of(payload)[0][:60].strip()
    answer = f"draft {number} [{scenario.name}] {first} [1]"
    return openai_server.content({"answerable": True, "answer": answer, "cited": [1]})


def _check(passed: bool, remark: str) -> Reply:
    verdict = {"binary_score": "yes" if passed else "no", "score": 1.0 if passed else 0.0, remark: ""}
    return openai_server.content(verdict)


def web_script(payload: dict[str, Any]) -> Reply:
    scenario = _scenario_in(payload["query"])
    if scenario is None or scenario.web == "ok":
        return tavily_server.default_script(payload)
    if scenario.web == "empty":
        return tavily_server.results()
    return tavily_server.api_error(403 if scenario.web == "forbidden" else 429)
