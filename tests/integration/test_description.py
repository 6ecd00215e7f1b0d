"""The collection's own description goes into the plan of a pipeline that routes by it."""

from sqlalchemy import Engine, text

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
