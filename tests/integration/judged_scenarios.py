"""The ways through the pipelines that judge their own answer: Self-RAG and adaptive."""

from tests.integration.scenario import NONE, YES, Scenario, Scores

# With k=1 the question finds Doc A; a query about ravens finds Doc C.
RAVENS = "Ravens nest on the crag in early spring"
ONLY_C: Scores = {"A": ("no", 0.1), "B": ("no", 0.1), "C": ("yes", 0.9)}
ONE = {"k": 1}
CHECKED = ["check_groundedness", "check_answer"]
ACCEPTED = ["generate", *CHECKED, "accept"]

# -- Self-RAG -------------------------------------------------------------------------------------------
FIRST = ["retrieve", "grade_document*3", "select"]
AGAIN = ["rewrite_query", "retrieve", "select"]  # finds the same documents, which have their grades
ASSESS = {"decide_retrieval": "on"}

SELF_RAG = [
    Scenario("s_plain", [*FIRST, *ACCEPTED], "answered"),
    Scenario("s_assess", ["assess", *FIRST, *ACCEPTED], "answered", params=ASSESS),
    Scenario("s_direct", ["assess", "answer_directly", "accept"], "answered", params=ASSESS, route="direct"),
    Scenario(
        "s_direct_none", ["assess", "answer_directly", "give_up"], "gave_up", params=ASSESS, route="direct",
        direct=False, reason="answer without documents",
    ),
    Scenario(
        "s_rewrite", ["retrieve", "grade_document", "select", "rewrite_query", "retrieve", "grade_document", "select",
                      *ACCEPTED],
        "answered", ONLY_C, ONE, rewrite=RAVENS,
    ),
    Scenario("s_none", [*FIRST, *AGAIN, *AGAIN, "give_up"], "gave_up", NONE, reason="3 documents, none relevant"),
    Scenario("s_nothing", ["retrieve", "select", *AGAIN, *AGAIN, "give_up"], "gave_up", collection="hollow",
             reason="nothing found"),
    Scenario(
        "s_ungrounded_once", [*FIRST, "generate", "check_groundedness", *ACCEPTED], "answered",
        ungrounded="draft 1",
    ),
    Scenario(
        "s_ungrounded", [*FIRST, *["generate", "check_groundedness"] * 3, "give_up"], "gave_up", ungrounded="draft",
        reason="does not stand in the documents",
    ),
    Scenario(
        "s_useless_once", ["retrieve", "grade_document", "select", "generate", *CHECKED, "rewrite_query", "retrieve",
                           "grade_document", "select", *ACCEPTED],
        "answered", YES, ONE, rewrite=RAVENS, useless="basalt",
    ),
    Scenario(
        "s_useless", [*FIRST, "generate", *CHECKED, *[*AGAIN, "generate", *CHECKED] * 2, "give_up"], "gave_up",
        useless="draft", reason="does not answer the question",
    ),
    Scenario(
        "s_undrafted", [*FIRST, "generate", *[*AGAIN, "generate"] * 2, "give_up"], "gave_up", answerable=False,
        reason="answer from 3 documents",
    ),
]  # fmt: skip
SELF_RAG = [scenario.of("self_rag") for scenario in SELF_RAG]

# -- adaptive -------------------------------------------------------------------------------------------
STORE = ["rewrite_query", "retrieve", "grade_document*3", "select"]
STORE_AGAIN = ["feedback_on_query", "rewrite_query", "retrieve", "select"]
TO_WEB = ["switch_to_web", "rewrite_query", "web_search"]
WEB = ["rewrite_query", "web_search", "grade_document*3", "select"]
WEB_AGAIN = ["feedback_on_query", "rewrite_query", "web_search"]
EXTRACT = ["extract_knowledge*3", "assemble"]
ONCE = {"max_retrievals": 1}
OFF = {"web_search": "off"}

ADAPTIVE = [
    Scenario("a_plain", ["route", *STORE, *EXTRACT, *ACCEPTED], "answered"),
    Scenario("a_direct", ["route", "answer_directly", "accept"], "answered", route="direct"),
    Scenario("a_direct_none", ["route", "answer_directly", "apologise"], "gave_up", route="direct", direct=False),
    Scenario("a_web", ["route", *WEB, *EXTRACT, *ACCEPTED], "answered", route="websearch"),
    Scenario(
        "a_feedback", ["route", "rewrite_query", "retrieve", "grade_document", "select", "feedback_on_query",
                       "rewrite_query", "retrieve", "grade_document", "select", "extract_knowledge", "assemble",
                       *ACCEPTED],
        "answered", ONLY_C, ONE, rewrite=RAVENS,
    ),
    Scenario(
        "a_fall_over", ["route", *STORE, *TO_WEB, "grade_document*3", "select", *EXTRACT, *ACCEPTED], "answered",
        NONE, ONCE, notes=("fell_over_to_web",),
    ),
    Scenario("a_nowhere", ["route", *STORE, "apologise"], "gave_up", NONE, {**ONCE, **OFF}),
    Scenario(
        "a_none", ["route", *STORE, *STORE_AGAIN, *TO_WEB, "select", *WEB_AGAIN, "select", "apologise"], "gave_up",
        NONE, web="empty", notes=("fell_over_to_web",), reason="nothing found",
    ),
    Scenario(
        "a_web_failed", ["route", "rewrite_query", "web_search", "select", *WEB_AGAIN, "select", "apologise"],
        "gave_up", route="websearch", web="forbidden", notes=("web_search_failed", "web_search_failed"),
    ),
    Scenario(
        "a_no_extract",
        ["route", *STORE, *EXTRACT, *STORE_AGAIN, "assemble", *TO_WEB, "grade_document*3", "select", *EXTRACT,
         *WEB_AGAIN, "select", "assemble", "apologise"],
        "gave_up", extracts="none", rewrite="another way to ask", notes=("fell_over_to_web",),
        reason="nothing of it bears on the question",
    ),
    Scenario(
        "a_invented", ["route", *STORE, *EXTRACT, "apologise"], "gave_up", extracts="invented",
        params={**ONCE, **OFF}, notes=("extract_not_verbatim",) * 3,
    ),
    Scenario(
        "a_ungrounded_once",
        ["route", *STORE, *EXTRACT, "generate", "check_groundedness", "feedback_on_answer", *ACCEPTED], "answered",
        ungrounded="draft 1",
    ),
    Scenario(
        "a_ungrounded", ["route", *STORE, *EXTRACT, "generate", "check_groundedness", "feedback_on_answer", "generate",
                         "check_groundedness", "apologise"],
        "gave_up", ungrounded="draft", params={"max_generations": 2}, reason="does not stand in the documents",
    ),
    Scenario(
        "a_useless",
        ["route", *STORE, *EXTRACT, "generate", *CHECKED, *STORE_AGAIN, "assemble", "generate", *CHECKED,
         *TO_WEB, "grade_document*3", "select", *EXTRACT, "generate", *CHECKED, "apologise"],
        "gave_up", useless="draft", notes=("fell_over_to_web",), reason="does not answer the question",
    ),
    Scenario(
        "a_undrafted",
        ["route", *STORE, *EXTRACT, "generate", *STORE_AGAIN, "assemble", "generate",
         *TO_WEB, "grade_document*3", "select", *EXTRACT, "generate", "apologise"],
        "gave_up", answerable=False, notes=("fell_over_to_web",), reason="answer from 3 documents",
    ),
]  # fmt: skip
ADAPTIVE = [scenario.of("adaptive") for scenario in ADAPTIVE]
