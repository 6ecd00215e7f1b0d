"""Flower's options: known to Flower, behind a password, and read-only unless a setting says otherwise."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from flower.options import default_options

from shared.settings import get_settings

CONFIG = Path(__file__).resolve().parents[3] / "workers" / "flower_config.py"


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(**values: str) -> dict[str, Any]:
        monkeypatch.setenv("CRAGLINE_HOME", str(tmp_path))
        monkeypatch.setenv("CRAGLINE_FLOWER_PASSWORD", "correct-horse")
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        get_settings.cache_clear()
        return {
            name: value for name, value in runpy.run_path(str(CONFIG)).items() if not name.startswith("_")
        }

    yield run
    get_settings.cache_clear()


def test_flower_only_shows_unless_it_is_let(read: Any) -> None:
    assert read()["read_only"] is True
    assert read(CRAGLINE_FLOWER_CONTROL="true")["read_only"] is False


def test_a_password_is_asked_for(read: Any) -> None:
    assert read()["basic_auth"] == ["cragline:correct-horse"]


def test_every_name_is_an_option_of_flower_and_explained(read: Any) -> None:
    names = set(read()) - {"get_settings", "flower_login"}
    assert names <= {name.replace("-", "_") for name in default_options.as_dict()}
    page = (CONFIG.parents[1] / "docs" / "flower.md").read_text(encoding="utf-8")
    assert {name for name in names if f"| `{name}` |" not in page} == set()
