"""Every value that can be set, in one class; nothing else reads the environment.

Values come from the environment and from a `.env` file in the working directory, with the prefix
`CRAGLINE_`. The keys of other vendors keep the names their own documentation uses (`OPENAI_API_KEY`,
`OPENAI_BASE_URL`, `TAVILY_API_KEY`). `docs/settings.md` is generated from the descriptions below.
"""

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from shared.errors import UsageError

Provider = Literal["local", "openai"]
Reuse = Literal["off", "batch", "all"]


class ModelLimits(BaseModel):
    """Limits of one model per minute; None: as the provider's headers say."""

    model_config = ConfigDict(extra="forbid")

    requests: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="CRAGLINE_",
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        populate_by_name=True,
        hide_input_in_errors=True,  # a malformed secret must not be quoted back
    )

    # -- where things are --------------------------------------------------------------------------
    home: Path = Field(
        Path(".cragline"),
        description="Folder of all state: the embedded servers' data, logs, secrets and stack.json.",
    )
    database_url: SecretStr | None = Field(
        None,
        description="Postgres 14+ (`postgresql://user:password@host/db`). Unset: the embedded Postgres.",
    )
    redis_url: SecretStr | None = Field(
        None,
        description="Redis 6.2+ or Valkey (`redis://:password@host:6379/0`). Unset: the embedded Valkey.",
    )
    qdrant_url: str | None = Field(
        None, description="A Qdrant server (`http://host:6333`). Unset: the local store in the home folder."
    )
    qdrant_api_key: SecretStr | None = Field(None, description="API key of the Qdrant server or cloud.")

    # -- models --------------------------------------------------------------------------------------
    openai_api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("OPENAI_API_KEY", "CRAGLINE_OPENAI_API_KEY"),
        description="Key of OpenAI or of a compatible server. Unset: the local models.",
    )
    openai_base_url: str | None = Field(
        None,
        validation_alias=AliasChoices("OPENAI_BASE_URL", "CRAGLINE_OPENAI_BASE_URL"),
        description="Base URL of a compatible server (Azure, vLLM, Ollama, llama.cpp ...), ending in /v1.",
    )
    models: Literal["auto", "local", "openai"] = Field(
        "auto", description="Who plays the roles. auto: openai when a key or base URL is set, else local."
    )
    embeddings: Literal["auto", "local", "openai"] = Field(
        "auto", description="Who embeds texts. auto: the same provider as `models`."
    )
    chat_model: str = Field("gpt-4.1-mini", description="OpenAI model of every role without one of its own.")
    role_models: dict[str, str] = Field(
        default_factory=dict,
        description='OpenAI model per role, as JSON: `{"relevance_grader": "gpt-4.1-nano"}`.',
    )
    embedding_model: str = Field("text-embedding-3-small", description="OpenAI embedding model.")
    structured_output: Literal["json_schema", "function_calling", "json_mode"] = Field(
        "json_schema",
        description="How OpenAI models are asked for structured answers; many compatible servers "
        "know only function_calling or json_mode.",
    )
    model_timeout: float = Field(60.0, gt=0, description="Seconds before a model call is given up.")

    # -- web search ----------------------------------------------------------------------------------
    tavily_api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("TAVILY_API_KEY", "CRAGLINE_TAVILY_API_KEY"),
        description="Key of Tavily. Unset: web search is off, which preflight and the history say.",
    )
    tavily_base_url: str | None = Field(
        None, description="Another address for Tavily's API (a proxy or a test)."
    )
    web_timeout: float = Field(20.0, gt=0, description="Seconds before a web search is given up.")

    # -- limits and money ----------------------------------------------------------------------------
    requests_per_minute: int | None = Field(
        None,
        ge=1,
        description="Calls of one model per minute, by all workers together. Unset: no limit until the "
        "provider's headers name one.",
    )
    tokens_per_minute: int | None = Field(
        None, ge=1, description="Tokens of one model per minute, read and written. Unset: as above."
    )
    model_limits: dict[str, ModelLimits] = Field(
        default_factory=dict,
        description='The same for single models, as JSON: `{"gpt-4.1": {"requests": 500, "tokens": 30000}}`.',
    )
    searches_per_minute: int | None = Field(
        None, ge=1, description="Web searches per minute, by all workers together. Unset: no limit."
    )
    breaker_failures: int = Field(
        4,
        ge=1,
        description="Failures of a provider in a row (no connection, timeouts, HTTP 5xx) after which its "
        "calls wait and one at a time is tried.",
    )
    patience_seconds: float = Field(
        7200.0,
        ge=0,
        description="How long a step is tried again without counting its attempts while its provider fails "
        "or refuses by rate limits.",
    )
    web_patience_seconds: float = Field(
        20.0,
        ge=0,
        description="The same for web searches; after that, runs go on without the web, and say so.",
    )
    max_output_tokens: int | None = Field(
        None,
        ge=16,
        description="The most tokens a model may write in one call. Unset: the model's own bound, and "
        "reservations go by what it wrote before.",
    )
    model_prices: dict[str, tuple[float, float]] = Field(
        default_factory=dict,
        description="USD per million tokens, read and written, of models whose price is not known or has "
        'changed, as JSON: `{"my-model": [0.5, 1.5]}`.',
    )

    # -- knowledge -----------------------------------------------------------------------------------
    collection: str = Field("default", description="Collection used when a command names none.")
    chunk_tokens: int = Field(250, ge=20, le=2000, description="Size of a chunk, in tokens.")
    chunk_overlap: int = Field(25, ge=0, description="Tokens that two neighbouring chunks share.")

    # -- identical work ------------------------------------------------------------------------------
    reuse: Reuse = Field(
        "batch",
        description="Identical paid work is done once: within a batch, across all batches that say `all`, or "
        "off. A batch may say otherwise with `--reuse`.",
    )
    reuse_days: float = Field(
        30.0, gt=0, description="How old a stored result may be that another run takes over, in days."
    )
    reuse_web_hours: float = Field(
        24.0, gt=0, description="The same for what a web search brought, in hours; the web changes faster."
    )

    # -- the runner ----------------------------------------------------------------------------------
    window: int = Field(128, ge=1, description="Runs in flight at once, over all batches.")
    worker_threads: int = Field(16, ge=1, description="Threads of one worker process.")
    max_attempts: int = Field(4, ge=1, description="Tries of one (run, step, branch) before it has failed.")
    retry_base: float = Field(
        1.0, gt=0, description="Seconds before the first retry; doubled for each further one."
    )
    retry_cap: float = Field(60.0, gt=0, description="The longest pause between two tries, in seconds.")
    lease_seconds: float = Field(
        20.0, gt=0, description="A claim whose worker has not been heard of for so long is given to another."
    )
    heartbeat_seconds: float = Field(5.0, gt=0, description="How often a worker renews its claims.")
    republish_seconds: float = Field(
        30.0, gt=0, description="A ready step that nobody claimed for so long is published again."
    )

    confirm_above_usd: float = Field(
        5.0,
        ge=0,
        description="`submit` asks first when a batch may cost more than so many US dollars; `--yes` answers.",
    )

    # -- the HTTP API --------------------------------------------------------------------------------
    api_auth: Literal["auto", "required"] = Field(
        "auto",
        description="auto: requests of this machine to the embedded stack's API need no key. required: all do.",
    )
    api_max_upload_mb: int = Field(512, ge=1, description="The largest file or body of a batch, in MB.")
    api_max_rows: int = Field(
        1_000_000, ge=1, description="The most rows of a batch that is submitted by HTTP."
    )
    api_rate: int = Field(
        600, ge=1, description="Requests a minute that one key may send; short bursts are let through."
    )
    api_queue_seconds: float = Field(
        900.0, gt=0, description="Not ready any more once questions wait for so long and none is admitted."
    )
    webhook_secret: SecretStr | None = Field(
        None,
        description="Signs the webhooks of ended batches (HMAC-SHA256). Unset: `callback_url` is refused.",
    )
    webhook_allow_private: bool = Field(
        False, description="Call webhooks at addresses of your own network, too."
    )
    api_key: SecretStr | None = Field(
        None, description="Key with which the command line speaks to `--server`."
    )

    # -- Flower and logs -----------------------------------------------------------------------------
    flower_user: str = Field("cragline", description="User name of Flower's basic auth.")
    flower_password: SecretStr | None = Field(
        None, description="Password of Flower's basic auth. Unset: made once and kept in the home folder."
    )
    flower_control: bool = Field(
        False,
        description="Let Flower stop workers and revoke or start tasks. Off: it only shows.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level logged.")
    log_json: bool = Field(False, description="One JSON object a log line instead of text.")

    @field_validator("home")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        try:
            return value.expanduser().absolute()
        except RuntimeError:
            raise ValueError("there is no such user whose folder ~ could stand for") from None
        except FileNotFoundError:
            raise ValueError("a relative path, but the working directory is gone") from None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise ValueError("CRAGLINE_LEASE_SECONDS must be at least twice CRAGLINE_HEARTBEAT_SECONDS")
        if self.chunk_overlap >= self.chunk_tokens:
            raise ValueError("CRAGLINE_CHUNK_OVERLAP must be below CRAGLINE_CHUNK_TOKENS")
        return self

    @property
    def provider(self) -> Provider:
        """Who plays the model roles."""
        if self.models != "auto":
            return self.models
        return "openai" if self.openai_api_key or self.openai_base_url else "local"

    @property
    def embedding_provider(self) -> Provider:
        return self.provider if self.embeddings == "auto" else self.embeddings

    @property
    def web_search_on(self) -> bool:
        return self.tavily_api_key is not None


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The process's settings, read once. Raises UsageError that names the variables (or the `.env` file),
    never their values."""
    try:
        return Settings()
    except ValidationError as error:
        raise UsageError(" ".join(map(_explain, error.errors(include_input=False)))) from None
    except SettingsError as error:  # a dict or list that is not JSON; its text names the field only
        found = _FIELD.search(str(error))
        name = _variable(found[1]) if found else "A setting"
        raise UsageError(f"{name}: not valid JSON.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{_dotenv()}: not UTF-8. Save it as UTF-8.") from None
    except OSError as error:
        raise UsageError(f"{_dotenv()}: cannot be read ({error.strerror}).") from None


_FIELD = re.compile(r'field "(\w+)"')


def _dotenv() -> str:
    return os.path.abspath(str(Settings.model_config["env_file"]))


def _explain(problem: Any) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ")
    name = str(problem["loc"][0]) if problem["loc"] else ""
    if not name:
        return f"{message}."
    return f"{_variable(name)}: {message}."


def _variable(name: str) -> str:
    return name if name.isupper() else f"CRAGLINE_{name.upper()}"
