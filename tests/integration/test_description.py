"""The collection's own description goes into the plan of a pipeline that routes by it."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from api.cli import inprocess
from shared.knowledge import resolved
from shared.plan import make_plan
from shared.settings import Settings

SETTINGS = Settings(_env_file=None)  # type: ignore[call-arg]


def describe(engine: Engine, description: str | None) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO collections (name, embedding_model, dimension, description)"
                " VALUES ('walls', 'm', 3, :description)"
            ),
            {"description": description},
        )


def test_a_pipeline_that_routes_gets_the_description(database: Engine) -> None:
    describe(database, "Guides to climbing walls.")
    plan = resolved(database, make_plan(SETTINGS, "adaptive", {}, "walls"))
    assert plan.params["description"] == "Guides to climbing walls."


def test_what_the_submitter_says_comes_first(database: Engine) -> None:
    describe(database, "Guides to climbing walls.")
    plan = resolved(database, make_plan(SETTINGS, "self_rag", {"description": "mine"}, "walls"))
    assert plan.params["description"] == "mine"


def test_without_one_it_stays_empty_and_others_have_none(database: Engine) -> None:
    describe(database, None)
    assert resolved(database, make_plan(SETTINGS, "adaptive", {}, "walls")).params["description"] == ""
    assert "description" not in resolved(database, make_plan(SETTINGS, "crag", {}, "walls")).params


def test_a_question_asked_in_process_gets_it_as_well(
    database: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    describe(database, "Guides to walls = and crags.")
    monkeypatch.setattr(inprocess, "get_engine", lambda: database)
    settings = Settings(_env_file=None, home=tmp_path / "home")  # type: ignore[call-arg]
    monkeypatch.setattr(inprocess, "get_settings", lambda: settings)
    given: list[list[str]] = []
    monkeypatch.setattr(inprocess, "_events", lambda words: given.append(words) or [])
    inprocess.ask("Which wall?", pipeline="adaptive", collection="walls", set_=["k=2"])
    inprocess.ask("Which wall?", pipeline="crag", collection="walls")
    adaptive, crag = given
    assert "--set=description=Guides to walls = and crags." in adaptive and "--set=k=2" in adaptive
    assert "--collection=walls" in adaptive
    assert not any("description" in word for word in crag)
