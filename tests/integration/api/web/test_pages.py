"""The pages as they are sent: what stands in them, that text stays text, and that batches of others do not
exist."""

from html.parser import HTMLParser
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from tests.integration.api.conftest import Api
from tests.integration.api.web import data
from tests.integration.api.web.data import ALL_HOSTILE, BAD_LINKS, add_batch

OURS = ("hx-", "aria-", "href", "src", "class", "id")


class Reader(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def read(client: TestClient, path: str, **more: Any) -> Reader:
    answer = client.get(path, **more)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return Reader(answer.text)


@pytest.fixture(scope="module")
def hostile(engine: Engine) -> dict[str, int]:
    """A batch and a run with hostile text wherever text can be."""
    questions = [f"{number} {said}" for number, said in enumerate(data.HOSTILE)]
    statuses = ["answered", "gave_up", "failed", "cancelled"] + ["answered"] * (len(questions) - 4)
    batch, runs = add_batch(engine, questions, statuses, name=ALL_HOSTILE, answer=ALL_HOSTILE)
    data.add_crag_story(engine, runs[0], ALL_HOSTILE, BAD_LINKS)
    return {"batch": batch, "run": runs[0], "gave_up": runs[1], "failed": runs[2]}


PAGES = (
    "/",
    "/batches/{batch}",
    "/batches/{batch}?part=card",
    "/batches/{batch}?part=questions",
    "/batches/{batch}?part=events",
    "/batches/{batch}?words=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
    "/?name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
    "/batches/{batch}/nodes",
    "/runs/{run}",
    "/runs/{gave_up}",
    "/runs/{failed}",
    "/upload",
)


@pytest.mark.parametrize("path", PAGES)
def test_hostile_text_is_text_on_every_page(local: TestClient, hostile: dict[str, int], path: str) -> None:
    page = read(local, path.format(**hostile))
    scripts = page.all("script")
    assert all(one["src"].startswith("/static/") for one in scripts)
    assert len(scripts) == (0 if "part=" in path else 3)
    assert page.all("img") == page.all("iframe") == page.all("b") == page.all("object") == []
    assert page.all("style") == []
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, attributes)
            if name.startswith("hx-") and name not in ("hx-confirm", "hx-trigger", "hx-swap", "hx-target"):
                assert "evil" not in value, (tag, attributes)
            if name in ("href", "src", "action", "formaction", "hx-get", "hx-post"):
                assert value.startswith(("/", "#")) and not value.startswith("//"), (tag, attributes)
    assert len(page.ids()) == len(set(page.ids()))


def test_all_of_the_hostile_text_is_shown(local: TestClient, hostile: dict[str, int]) -> None:
    page = read(local, f"/runs/{hostile['run']}")
    assert page.text.count(ALL_HOSTILE) >= 12  # answer, decision, rewrite, documents, grades, worker, ...
    for source in BAD_LINKS:
        assert source in page.text
    assert ALL_HOSTILE in read(local, "/").text


def test_sources_that_are_pages_are_links_that_tell_nothing(engine: Engine, local: TestClient) -> None:
    _, (run,) = add_batch(engine, ["Linked?"], ["answered"])
    data.add_crag_story(engine, run, "A title", ["https://example.org/a?b=1&c=%22", "docs/x.md"])
    links = [one for one in read(local, f"/runs/{run}").all("a") if "target" in one]
    assert {one["href"] for one in links} == {"https://example.org/a?b=1&c=%22"}
    assert {one["rel"] for one in links} == {"noopener noreferrer"}


# -- the list ---------------------------------------------------------------------------------------------
def test_the_list_pages_filters_and_renews_itself(api: Api) -> None:
    client = api.client(api.key("lister", "read"))
    for number in range(23):
        statuses = ["answered"] if number % 2 else ["pending"]
        add_batch(api.engine, ["q?"], statuses, name=f"Batch no {number:02}", owner="lister")
    first = read(client, "/")
    assert len(first.all("article")) == 20
    assert "Batch no 22" in first.text and "Batch no 02" not in first.text
    (older,) = [one["href"] for one in first.all("a") if one.get("rel") == "next"]
    second = read(client, older)
    assert len(second.all("article")) == 3
    assert "Batch no 02" in second.text
    assert len(read(client, "/?status=ended&name=NO%20").all("article")) == 11
    part = client.get("/", headers={"hx-request": "true"}).text
    assert part.lstrip().startswith('<div id="batches"') and "<html" not in part
    assert not any(
        one.get("action", "").startswith("/batches/") for one in first.all("form")
    )  # may only read


def test_a_card_shows_how_far_a_batch_is(engine: Engine, local: TestClient) -> None:
    statuses = ["answered", "answered", "gave_up", "failed", "running", "pending", "pending", "pending"]
    batch, _ = add_batch(engine, [f"q{n}?" for n in range(8)], statuses)
    page = read(local, f"/batches/{batch}")
    (bar,) = page.all("progress")
    assert (bar["value"], bar["max"]) == ("4", "8")
    for said in (
        "50%",
        "4 of 8",
        "2 answered",
        "1 gave up",
        "1 failed",
        "1 running",
        "3 pending",
        "Time left",
    ):
        assert said in page.text
    assert "open, 50% of the questions done" in page.text  # for who listens
    verbs = {
        one["action"].rpartition("/")[2] for one in page.all("form") if "/batches/" in one.get("action", "")
    }
    assert verbs == {"pause", "cancel", str(batch)}


def test_a_cancelled_batch_boasts_of_no_pace(api: Api) -> None:
    batch, _ = add_batch(api.engine, ["q?", "r?"])
    client = api.client()
    assert client.post(f"/batches/{batch}/cancel", headers={"hx-request": "true"}).status_code == 200
    page = read(client, f"/batches/{batch}?part=card")
    assert "2 cancelled" in page.text
    assert "/min" not in page.text
    assert "cancelled" in read(client, f"/batches/{batch}?part=events").text


# -- a batch's questions ----------------------------------------------------------------------------------
def shown(page: Reader) -> list[str]:
    return [one["id"] for one in page.all("tr") if one.get("id", "").startswith("run-")]


def test_questions_come_in_pages_that_hold_each_once(engine: Engine, local: TestClient) -> None:
    batch, runs = add_batch(engine, [f"Question {n}?" for n in range(120)])
    path, found = f"/batches/{batch}", []
    for _ in range(3):
        page = read(local, path)
        found += shown(page)
        path = next((one["href"] for one in page.all("a") if one.get("rel") == "next"), "")
    assert found == [f"run-{run}" for run in runs]
    assert path == ""


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("status=failed", [3]),
        ("words=ÄPFEL", [2]),
        ("words=of%20the%20ANSWER", [1, 2]),
        ("words=%25", []),
        ("words=of%20the&status=answered", [1, 2]),
        ("words=契約", [4]),
        ("after=2", [3, 4]),
    ],
)
def test_questions_are_filtered_and_searched(
    engine: Engine, local: TestClient, query: str, rows: list[int]
) -> None:
    if not hasattr(test_questions_are_filtered_and_searched, "made"):
        made = add_batch(
            engine,
            ["Why?", "Was kosten äpfel?", "How?", "契約期間は?"],
            ["answered", "answered", "failed"],
            answer="A part of the answer",
        )
        test_questions_are_filtered_and_searched.made = made  # type: ignore[attr-defined]
        data.set_status(engine, made[1][2], "failed", "broke")
    batch, runs = test_questions_are_filtered_and_searched.made  # type: ignore[attr-defined]
    assert shown(read(local, f"/batches/{batch}?{query}")) == [f"run-{runs[row - 1]}" for row in rows]


def test_results_are_offered_in_three_formats(engine: Engine, local: TestClient) -> None:
    batch, _ = add_batch(engine, ["q?"], ["answered"])
    offered = [one["href"] for one in read(local, f"/batches/{batch}").all("a") if "download" in one]
    assert len(offered) == 3
    for path in offered:
        assert local.get(path).status_code == 200
        assert local.get(path).headers["content-disposition"].startswith("attachment")


# -- a run ------------------------------------------------------------------------------------------------
def test_a_run_tells_its_whole_story(engine: Engine, local: TestClient) -> None:
    _, (run, _) = add_batch(engine, ["The question?", "Another?"], ["answered"], answer="The answer [1].")
    data.add_crag_story(engine, run, "Said", ["docs/a.md", "https://example.org/"])
    page = read(local, f"/runs/{run}")
    for said in (
        "The question?",
        "The answer [1].",
        "relevant 0.82",
        "not relevant 0.31",
        "Passage 2. Said",  # the text of a document
        "rewritten Said",
        "busy: Said",  # the attempt that was retried
        "try 2",
        "worker-1@host",
        "120 + 30",
        "$0.0080",  # the web search
        "×3",
        "Next question",
    ):
        assert said in page.text, said
    assert page.text.count("The question?") == 1  # what was first searched for is no rewrite
    (drawn,) = [one for one in page.all("svg") if one.get("role") == "img"]
    assert drawn["aria-labelledby"] == "graph-title graph-said"
    assert "retrieve, grade_document 3 times, decide, rewrite_query, web_search, generate" in page.text
    assert len([one for one in page.all("path") if one.get("class") == "edge taken"]) == 7


def test_a_run_that_went_round_shows_its_loops(engine: Engine, local: TestClient) -> None:
    _, (run,) = add_batch(engine, ["Again?"], ["answered"], pipeline="adaptive")
    data.add_adaptive_story(engine, run, "Said")
    page = read(local, f"/runs/{run}")
    assert page.text.count("×2") == 6
    assert "generate 2 times" in page.text
    assert "useful 0.90" in page.text


def test_a_run_that_has_not_begun_is_shown(engine: Engine, local: TestClient) -> None:
    _, (run,) = add_batch(engine, ["Pending?"])
    page = read(local, f"/runs/{run}")
    assert "The run has not begun." in page.text
    assert "Not ended yet." in page.text


@pytest.mark.parametrize(
    "update", [None, [], {"documents": "x"}, {"documents": [1, {}]}, {"decision": 3, "checks": [2]}]
)
def test_a_state_of_another_shape_breaks_no_page(engine: Engine, local: TestClient, update: Any) -> None:
    _, (run,) = add_batch(engine, ["Odd?"], ["answered"], pipeline="rag")
    data.step(engine, run, 1, "retrieve", "__start__", ["generate"], update=update)
    read(local, f"/runs/{run}")


def test_node_latencies_are_drawn(engine: Engine, local: TestClient) -> None:
    batch, (run,) = add_batch(engine, ["Slow?"], ["answered"])
    for number, ms in enumerate([3.0, 30.0, 30.0, 250_000.0], 1):
        data.step(engine, run, number, "generate", "decide", [], ms=ms)
    page = read(local, f"/batches/{batch}/nodes")
    (chart,) = [one for one in page.all("svg") if one.get("class") == "histogram"]
    assert chart["aria-label"].startswith("generate: 4 attempts, half of them within 30 ms")
    bars = [one for one in page.all("rect") if float(one.get("height", 0)) > 0]
    assert len(bars) == 3


# -- errors -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/batches/987654", 404),
        ("/runs/987654", 404),
        ("/batches/0", 422),
        ("/batches/1?status=x", 422),
        ("/static/x", 404),
    ],
)
def test_an_error_is_a_page_for_people_and_a_document_for_the_script(
    local: TestClient, path: str, status: int
) -> None:
    answer = local.get(path, headers={"hx-request": "true"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    if not path.startswith("/static"):
        answer = local.get(path)
        assert answer.status_code == status
        page = Reader(answer.text)
        assert len(page.all("h1")) == 1
        assert answer.headers["content-type"].startswith("text/html")


def test_headers_keep_the_page_to_itself(local: TestClient) -> None:
    headers = local.get("/").headers
    assert headers["x-frame-options"] == "DENY"
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


def test_a_part_of_a_static_file_is_the_whole(local: TestClient) -> None:
    """Ranges that are wrong would be refused otherwise than everything else is."""
    for wanted in ("bytes=99999999-", "bytes=z"):
        assert local.get("/static/page.css", headers={"range": wanted}).status_code == 200


def test_static_files_are_kept_by_their_content(local: TestClient) -> None:
    page = read(local, "/")
    files = [one["src"] for one in page.all("script")] + [one["href"] for one in page.all("link")]
    for path in files:
        answer = local.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    for path in ("/static/../render.py", "/static/%2e%2e/render.py", "/static/vendor/README.md", "/static/"):
        assert local.get(path).status_code == 404


def test_an_address_that_nothing_is_at_is_a_page_for_a_browser_only(local: TestClient) -> None:
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = local.get("/nope", headers=browser)
    assert answer.status_code == 404
    assert len(Reader(answer.text).all("h1")) == 1
    for path, headers in (("/nope", {}), ("/v1/nope", browser)):
        answer = local.get(path, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
