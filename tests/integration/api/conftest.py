"""The API in process, on a migrated database of the session, with no workers."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

from api.app import create_app
from shared import keys
from shared.db import transaction
from shared.settings import Settings
from shared.stack.testing import Servers
from tests.conftest import own_database

HERE = "http://127.0.0.1:8585"


@pytest.fixture(scope="module")
def engine(servers: Servers) -> Iterator[Engine]:
    """A database with two filled collections: `docs`, and `other` of another embedding model."""
    with own_database(servers) as made:
        with transaction(made) as session:
            for collection, model in (("docs", "local/all-MiniLM-L6-v2-int8"), ("other", "openai/x")):
                values = {"c": collection, "m": model}
                session.execute(text("INSERT INTO collections VALUES (:c, :m, 3)"), values)
                session.execute(
                    text(
                        "INSERT INTO documents (collection, source, path, title, content_hash, chunk_ids,"
                        " embedding_model) VALUES (:c, 's', 'p', 't', 'h', '{a,b}', :m)"
                    ),
                    values,
                )
        yield made


@pytest.fixture(scope="module")
def settings(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(
        _env_file=None,  # type: ignore[call-arg]
        home=tmp_path_factory.mktemp("home"),
        database_url=servers.database_url,
        redis_url=servers.redis_url,
        collection="docs",
        webhook_secret="whsec-test",
        api_max_upload_mb=2,
        api_max_rows=500,
    )


class Api:
    """Clients of one application; each is its own user."""

    def __init__(self, settings: Settings, engine: Engine, **more: Any) -> None:
        self.engine = engine
        self.app = create_app(settings, engine, **more)

    def client(self, token: str | None = None, base: str = HERE, host: str = "127.0.0.1") -> TestClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return TestClient(
            self.app, base_url=base, headers=headers, client=(host, 50000), raise_server_exceptions=False
        )

    def key(self, owner: str, *scopes: str) -> str:
        return keys.create(self.engine, f"key of {owner}", owner, scopes or ("submit", "read"))[1]


@pytest.fixture(scope="module")
def api(settings: Settings, engine: Engine) -> Api:
    """Open on loopback, as with the embedded stack."""
    return Api(settings, engine, open_on_loopback=True)


@pytest.fixture
def local(api: Api) -> TestClient:
    """Somebody on this machine, without a key."""
    return api.client()
