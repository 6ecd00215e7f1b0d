"""The problem documents: what the command line says, in the words of who asks over HTTP."""

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.problems import install
from shared.errors import NotFound


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Name it with --max-cost.", "Name it with `max-cost`."),
        ("Fill it with `cragline ingest PATH --collection x`.", None),  # to be typed as it stands
        ("Say --sheet, or `cragline submit F --sheet 2`.", "Say `sheet`, or `cragline submit F --sheet 2`."),
    ],
)
def test_options_are_fields_but_commands_stay_commands(said: str, told: str | None) -> None:
    app = FastAPI()
    install(app)

    @app.get("/")
    def fail() -> None:
        raise NotFound(said)

    answer = TestClient(app).get("/")
    assert answer.status_code == 404
    assert answer.json()["detail"] == (told or said)
