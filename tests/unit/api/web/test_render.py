"""How numbers are written, what the bar shows, and that templates escape."""

import re
import tomllib
from decimal import Decimal
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest

from api.web import render
from api.web.histogram import charts
from shared.browse import BUCKETS_MS, NodeLatency

COUNTS = {
    "submitted": 8,
    "pending": 2,
    "running": 1,
    "answered": 3,
    "gave_up": 1,
    "failed": 1,
    "cancelled": 0,
}


@pytest.mark.parametrize(
    ("amount", "said"),
    [(None, "–"), (0, "$0.00"), (Decimal("0.00412"), "$0.0041"), (1234.5, "$1,234.50")],
)
def test_dollars(amount: Any, said: str) -> None:
    assert render.usd(amount) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (0.4, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (1250, "1.2 s"),
        (20_000, "20 s"),
        (100_000, "1 min 40 s"),
    ],
)
def test_durations(value: float | None, said: str) -> None:
    assert render.milliseconds(value) == said


def test_the_bar_shows_each_outcome_beside_the_other() -> None:
    parts = render.parts(COUNTS)
    assert [(one["status"], one["count"]) for one in parts] == [
        ("answered", 3),
        ("gave_up", 1),
        ("failed", 1),
        ("running", 1),
    ]
    for before, after in pairwise(parts):
        assert after["left"] == before["left"] + before["width"]
    assert sum(one["width"] for one in parts) == 75  # what is pending stays empty


def test_progress_is_what_has_ended() -> None:
    made = render.card({"status": "open"}, COUNTS)
    assert (made["done"], made["percent"], made["open"]) == (5, 62, True)
    assert render.card({"status": "ended"}, None)["row"] is None


def test_templates_escape_whatever_their_name() -> None:
    made = render.environment().from_string("{{ x }}<a title='{{ x }}'>")
    assert made.render(x="<b>'\"&") == "&lt;b&gt;&#39;&#34;&amp;<a title='&lt;b&gt;&#39;&#34;&amp;'>"


def test_no_template_turns_escaping_off_or_has_a_script_style_or_handler_of_its_own() -> None:
    for file in (render.HERE / "templates").glob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", text), file.name
        assert not re.search(r"<style|\sstyle=|\son\w+=|hx-on|javascript:|<script(?! src=)", text), file.name
        assert "http://" not in text and "https://" not in text, file.name  # nothing from elsewhere


def test_the_scripts_of_others_are_those_that_are_written_down() -> None:
    folder = render.STATIC / "vendor"
    told = dict(
        re.findall(r"`([\w.-]+\.js)`:.*?`([0-9a-f]{64})`", (folder / "README.md").read_text(), re.DOTALL)
    )
    assert told == {file.name: sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.js")}
    assert len(told) == 2
    assert (folder / "LICENSE").read_text(encoding="utf-8").startswith("Zero-Clause BSD")


def test_a_histogram_has_a_bar_for_each_bucket_and_says_what_it_shows() -> None:
    bars = [0] * (len(BUCKETS_MS) + 1)
    bars[4], bars[-1] = 90, 10
    (chart,) = charts([NodeLatency("generate", 100, 15.0, 200_000.0, 300_000.0, bars)])
    assert [bar.count for bar in chart.bars] == bars
    assert chart.bars[4].height > chart.bars[-1].height > chart.bars[0].height == 0
    assert chart.bars[4].said == "10 ms to 20 ms"
    assert chart.said == (
        "generate: 100 attempts, half of them within 15 ms, 95 of 100 within 3 min 20 s, the longest "
        "5 min 00 s; most of them took 10 ms to 20 ms."
    )


def test_every_file_of_the_page_is_installed_with_it() -> None:
    """Templates are in no package of their own, so that setuptools must be told of each kind of file."""
    told = tomllib.loads((render.HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = told["tool"]["setuptools"]["package-data"]
    installed = {file for pattern in patterns["api.web"] for file in render.HERE.glob(pattern)}
    needed = {
        file
        for folder in ("templates", "static")
        for file in (render.HERE / folder).rglob("*")
        if file.is_file()
    }
    assert needed == installed
    assert "*.json" in patterns["*"]
