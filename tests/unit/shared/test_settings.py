"""The settings: where values come from, and that secrets stay inside."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_settings import DotEnvSettingsSource

from shared.errors import UsageError
from shared.settings import Settings, get_settings

SECRETS = {
    "CRAGLINE_DATABASE_URL": "postgresql://user:hunter2-db@host/db",
    "CRAGLINE_REDIS_URL": "redis://:hunter2-redis@host:6379/0",
    "CRAGLINE_QDRANT_API_KEY": "hunter2-qdrant",
    "OPENAI_API_KEY": "sk-hunter2-openai",
    "TAVILY_API_KEY": "tvly-hunter2-tavily",
    "CRAGLINE_FLOWER_PASSWORD": "hunter2-flower",
}


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def test_without_anything_everything_is_embedded_and_local(env: pytest.MonkeyPatch) -> None:
    found = Settings()
    assert (found.database_url, found.redis_url, found.qdrant_url) == (None, None, None)
    assert (found.provider, found.embedding_provider, found.web_search_on) == ("local", "local", False)
    assert found.home == Path.cwd() / ".cragline"


def test_values_come_with_the_prefix_and_vendors_names_without(env: pytest.MonkeyPatch) -> None:
    env.setenv("CRAGLINE_WINDOW", "7")
    env.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    env.setenv("CRAGLINE_TAVILY_API_KEY", "tvly-1")
    env.setenv("WINDOW", "9")
    found = Settings()
    assert (found.window, found.openai_base_url, found.web_search_on) == (7, "http://localhost:1/v1", True)
    assert found.provider == "openai", "a base URL alone is a compatible server without a key"


def test_the_vendors_own_name_goes_first(env: pytest.MonkeyPatch) -> None:
    env.setenv("OPENAI_API_KEY", "sk-own")
    env.setenv("CRAGLINE_OPENAI_API_KEY", "sk-ours")
    key = Settings().openai_api_key
    assert key is not None and key.get_secret_value() == "sk-own"


def test_the_dotenv_file_is_read_and_the_environment_goes_before_it(
    env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text(
        "# a comment\nCRAGLINE_WINDOW=7\nCRAGLINE_LOG_LEVEL=debug\nTAVILY_API_KEY=tvly-1\nUNKNOWN=1\n"
    )
    env.setenv("CRAGLINE_WINDOW", "8")
    found = Settings()
    assert (found.window, found.log_level, found.web_search_on) == (8, "debug", True)


@pytest.mark.parametrize("name", [*SECRETS, "CRAGLINE_WINDOW", "CRAGLINE_QDRANT_URL", "CRAGLINE_ROLE_MODELS"])
def test_an_empty_value_is_as_good_as_none(env: pytest.MonkeyPatch, name: str, tmp_path: Path) -> None:
    env.setenv(name, "")
    assert Settings() == Settings(_env_file=None)  # type: ignore[call-arg]
    env.delenv(name)
    (tmp_path / ".env").write_text(f"{name}=\n")
    assert Settings().provider == "local" and not Settings().web_search_on


def test_every_secret_is_masked_wherever_settings_are_shown(env: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        env.setenv(name, value)
    found = Settings()
    for shown in (repr(found), str(found), str(found.model_dump()), found.model_dump_json()):
        assert "hunter2" not in shown
    assert found.openai_api_key is not None
    assert found.openai_api_key.get_secret_value() == "sk-hunter2-openai"


def test_every_setting_that_can_hold_a_secret_is_a_secret() -> None:
    for name, field in Settings.model_fields.items():
        if any(word in name for word in ("key", "password", "database_url", "redis_url")):
            assert "SecretStr" in str(field.annotation), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CRAGLINE_WINDOW", "hunter2"),
        ("CRAGLINE_LOG_LEVEL", "hunter2"),
        ("CRAGLINE_ROLE_MODELS", "{hunter2"),
        ("CRAGLINE_ROLE_MODELS", '["hunter2"]'),
        ("CRAGLINE_MODEL_TIMEOUT", "-1"),
    ],
)
def test_a_wrong_value_is_refused_by_name_and_not_quoted(
    env: pytest.MonkeyPatch, name: str, value: str
) -> None:
    env.setenv(name, value)
    with pytest.raises(Exception) as error:
        Settings()
    assert name.removeprefix("CRAGLINE_").lower() in str(error.value).lower()
    assert "hunter2" not in str(error.value)


def test_a_wrong_secret_is_not_quoted_back() -> None:
    wrong: Any = {"nested": "hunter2"}
    with pytest.raises(ValidationError) as error:
        Settings(_env_file=None, openai_api_key=wrong)  # type: ignore[call-arg]
    assert "hunter2" not in str(error.value) + repr(error.value)


def test_models_can_be_chosen_against_the_keys() -> None:
    def who(**values: Any) -> tuple[str, str]:
        found = Settings(_env_file=None, **values)
        return found.provider, found.embedding_provider

    assert who(openai_api_key="sk-1") == ("openai", "openai")
    assert who(openai_api_key="sk-1", models="local") == ("local", "local")
    assert who(models="openai") == ("openai", "openai")
    assert who(openai_api_key="sk-1", embeddings="local") == ("openai", "local")
    assert who(embeddings="openai") == ("local", "openai")


def test_home_is_absolute_and_the_tilde_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Settings(_env_file=None, home="~/state").home == Path("/home/somebody/state")  # type: ignore[call-arg, arg-type]
    assert Settings(_env_file=None, home="state").home == Path.cwd() / "state"  # type: ignore[call-arg, arg-type]


def test_every_setting_is_described() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description and field.description[-1] in ".`:", name


def test_the_processs_settings_are_read_once(env: pytest.MonkeyPatch) -> None:
    get_settings.cache_clear()
    try:
        first = get_settings()
        env.setenv("CRAGLINE_WINDOW", "7")
        assert get_settings() is first
    finally:
        get_settings.cache_clear()


def refusal() -> str:
    get_settings.cache_clear()
    with pytest.raises(UsageError) as caught:
        get_settings()
    assert "hunter2" not in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("value", ["{hunter2", '["hunter2"]', "hunter2"])
def test_role_models_that_are_no_json_object(env: pytest.MonkeyPatch, value: str, tmp_path: Path) -> None:
    env.setenv("CRAGLINE_ROLE_MODELS", value)
    assert refusal().startswith("CRAGLINE_ROLE_MODELS: ")
    env.delenv("CRAGLINE_ROLE_MODELS")
    (tmp_path / ".env").write_text(f"CRAGLINE_ROLE_MODELS={value}\n")
    assert refusal().startswith("CRAGLINE_ROLE_MODELS: ")


def test_a_dotenv_file_that_is_not_utf8(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"CRAGLINE_COLLECTION=caf\xe9 hunter2\n")
    assert refusal().startswith(f"{tmp_path}/.env: not UTF-8.")


def test_a_dotenv_file_that_may_not_be_read(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    env.setattr(DotEnvSettingsSource, "_read_env_file", refuse)
    (tmp_path / ".env").write_text("A=1\n")
    assert refusal() == f"{tmp_path}/.env: cannot be read (Permission denied)."


def test_the_folder_of_a_user_that_does_not_exist(env: pytest.MonkeyPatch) -> None:
    env.setenv("CRAGLINE_HOME", "~nobody-of-that-name/x")
    assert refusal() == "CRAGLINE_HOME: there is no such user whose folder ~ could stand for."
