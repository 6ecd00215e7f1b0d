"""One scenario for each way through the graphs, as data: what the models say, and the way it must take.

The collection holds exactly three documents (Doc A, B, C), all of which are always retrieved. A question
carries its scenario's name, so that the scripted servers know their part whatever is going on beside it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import openai_server, tavily_server
from tests.fakes.http_fake import Reply

DOCUMENTS = {
    "Doc A": "The basalt on the western crag is very old indeed. Climbers call it the old wall. It faces the sea.",
    "Doc B": "The hut below the crag was built in 1931. It sleeps twelve people. Its roof is red.",
    "Doc C": "Ravens nest on the crag in early spring. The paths are closed until June. Wardens watch them.",
}
Scores = dict[str, tuple[str, float | None]]  # title's letter -> (verdict, score)
YES: Scores = {"A": ("yes", 0.9), "B": ("yes", 0.8), "C": ("yes", 0.75)}
SOME: Scores = {"A": ("yes", 0.9), "B": ("no", 0.2), "C": ("no", 0.1)}
NONE: Scores = {"A": ("no", 0.2), "B": ("no", 0.1), "C": ("no", 0.05)}
MIDDLE: Scores = {"A": ("yes", 0.6), "B": ("no", 0.4), "C": ("no", 0.1)}
ODD: Scores = {"A": ("perhaps", None), "B": ("yes", 0.9), "C": ("yes", 0.9)}

GRADE = ["retrieve", "grade_document*3", "decide"]
REFINE = ["refine_document", "recompose"]


@dataclass(frozen=True)
class Scenario:
    name: str
    path: list[str]
    ends: str  # disposition
    grades: Mapping[str, tuple[str, float | None]] = field(default_factory=lambda: YES)
    params: Mapping[str, Any] = field(default_factory=dict)
    pipeline: str = "crag"
    collection: str = "docs"
    web: str = "ok"  # ok | empty | forbidden | busy
    strips: str = "yes"  # the verdict on every strip
    answerable: bool = True
    notes: tuple[str, ...] = ()  # labels, in order
    reason: str = ""

    @property
    def question(self) -> str:
        return f"How old is the crag? [{self.name}]"


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
        reason="none of the 3 retrieved documents was relevant and the web search failed",
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
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def expand(path: list[str]) -> list[str]:
    """`["a", "b*2"]` as one entry a task: `["a", "b", "b"]`."""
    tasks = []
    for item in path:
        name, _, times = item.partition("*")
        tasks += [name] * int(times or 1)
    return tasks


# -- the scripted servers' parts ------------------------------------------------------------------------


def _scenario_in(text: str) -> Scenario | None:
    match = re.search(r"\[(\w+)\]", text)
    return BY_NAME.get(match.group(1)) if match else None


def chat_script(role: str, payload: dict[str, Any]) -> Reply:
    scenario = _scenario_in(openai_server.question_of(payload))
    if scenario is None:
        return openai_server.default_script(role, payload)
    if role == "relevance_grader":
        text = openai_server.documents_of(payload)[0]
        letter = next((title[-1] for title, whole in DOCUMENTS.items() if whole in text), None)
        if letter is None:  # a strip
            return openai_server.content(
                {"binary_score": scenario.strips, "score": 0.9 if scenario.strips == "yes" else 0.1}
            )
        verdict, score = scenario.grades[letter]
        if verdict == "perhaps":
            return openai_server.prose("It depends on how one looks at it.")
        return openai_server.content({"binary_score": verdict, "score": score})
    if role == "answer_generator" and not scenario.answerable:
        return openai_server.content({"answerable": False, "answer": "", "cited": []})
    return openai_server.default_script(role, payload)


def web_script(payload: dict[str, Any]) -> Reply:
    scenario = _scenario_in(payload["query"])
    if scenario is None or scenario.web == "ok":
        return tavily_server.default_script(payload)
    if scenario.web == "empty":
        return tavily_server.results()
    return tavily_server.api_error(403 if scenario.web == "forbidden" else 429)
