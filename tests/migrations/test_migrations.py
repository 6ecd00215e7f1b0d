"""The migrations: one head, up and down with data in every table, and the models say the same as they do."""

import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from shared import migrate
from shared.db import make_engine
from shared.stack.testing import Servers
from shared.tables import Base
from tests.conftest import drop_database, make_database
from tests.integration.runner.bench import at_once

# A released view file is never edited: a change is a new file, batch_progress_v2.sql, and a migration.
RELEASED_VIEWS = {
    "batch_progress_v1.sql": "6b4684bc9ca0dee5e9e623d273ef808831f06d78d0d26009c3320fb38d080d59",
    "batch_progress_v2.sql": "a168edd3992ef669b15590d3f52de0cc33264ec734d714d7f173812a503e17d5",
    "batch_progress_v3.sql": "f06307acbecfa7d8767016e75772c879374b1d3d59b4a79087f70f1a72d3bc49",
    "batch_progress_v4.sql": "1f59667a9c69a0b50cb29c021459ecc66ad2e338b43f7b4ae7ab599ffee1974b",
    "batch_progress_v5.sql": "0a5427cdb963ddd8497f2bcdd46a135a82ed5e5a4527d1f4819b218e27ad36a9",
    "grade_history_v1.sql": "d3196a8e769039926788c3df72c9c00e045feda0515095455569b2aff8cfcd6d",
    "lost_runs_v1.sql": "09e426dcbb96574f3ea18bcbbd95a50182b4d1e4a52dc8802b70c1bcb018b3a5",
    "lost_runs_v2.sql": "58f4eb754940070ada284e510665f38976ef3c66119b958bdf00918e925a203a",
    "node_stats_v1.sql": "513c9ac51b694053cea29e8366ae4b2a7033e5d0f85d3c0026a2ddb2006ca8a8",
    "run_timeline_v1.sql": "bfafe07841f190b17dc1887fe0da286349b3cb65df139922d74f9c46dc0afe33",
}
VERSIONS = sorted((migrate.MIGRATIONS / "versions").glob("*.py"))

SEED = [
    "SELECT ensure_transitions_partition('2026-01-01'), ensure_transitions_partition('2026-02-01')",
    "INSERT INTO batches (name, pipeline, collection, plan, source, row_count, run_count, month)"
    " VALUES ('b', 'crag', 'c', '{}', '{}', 2, 1, '2026-01-01')",
    "INSERT INTO runs (id, batch_id, first_row, question) SELECT 1, id, 1, 'q' FROM batches",
    "INSERT INTO batch_rows (batch_id, row_number, run_id, original) SELECT id, 1, 1, '[\"q\"]' FROM batches",
    "INSERT INTO claims (run_id, step, branch, width, node, came_from) VALUES (1, 1, 0, 1, 'retrieve', '{}')",
    *(
        "INSERT INTO transitions (month, run_id, batch_id, step, branch, attempt, node, status, came_from,"
        f" goes_to, started_at, ended_at, duration_ms) SELECT '{month}', 1, id, 1, 0, 1, 'retrieve',"
        " 'succeeded', '{}', '{}', now(), now(), 0 FROM batches"
        for month in ("2026-01-01", "2026-02-01")
    ),
    "INSERT INTO grades (batch_id, run_id, step, branch, document_id, title, source, label, model,"
    " prompt_version) SELECT id, 1, 1, 0, 'd', 't', 's', 'relevant', 'm', 'v' FROM batches",
    "INSERT INTO model_calls (batch_id, run_id, step, branch, attempt, node, role, provider, model,"
    " prompt_version, request_hash, status, response, duration_ms)"
    " SELECT id, 1, 1, 0, 1, 'n', 'r', 'openai', 'm', 'v', 'h', 'ok', '1', 0 FROM batches",
    "INSERT INTO web_searches (batch_id, run_id, step, branch, attempt, provider, query, request_hash, status,"
    " duration_ms) SELECT id, 1, 1, 0, 1, 'tavily', 'q', 'h', 'ok', 0 FROM batches",
    "INSERT INTO api_keys (name, owner, scopes, token_start, token_hash) VALUES ('n', 'o', '{read}', 's', 'h')",
    "INSERT INTO idempotency_keys (owner, key, body_hash, batch_id) SELECT 'o', 'k', 'h', id FROM batches",
    "INSERT INTO webhook_deliveries (batch_id, batch_ended_at, url) SELECT id, now(), 'u' FROM batches",
    "INSERT INTO heartbeats (name) VALUES ('beat')",
    "INSERT INTO metric_sums VALUES ('p', 'n', 'succeeded', '', 0, 1, 0.5, 0, 0, 0)",
    "INSERT INTO budgets (batch_id) SELECT id FROM batches",
    "INSERT INTO reservations (batch_id, run_id, step, branch, attempt, role, cost_usd, tokens)"
    " SELECT id, 1, 1, 0, 1, 'r', 0.01, 100 FROM batches",
    "INSERT INTO retrievals (batch_id, run_id, step, branch, attempt, collection, collection_version, query, k,"
    " mode, filters, request_hash, documents, duration_ms)"
    " SELECT id, 1, 1, 0, 1, 'c', 1, 'q', 4, 'dense', '{}', 'h', '[]', 0 FROM batches",
    "INSERT INTO flights (key, run_id, step, branch, attempt) VALUES ('k', 1, 1, 0, 1)",
    "INSERT INTO prompts (role, version, text) VALUES ('r', 'v', 't')",
    "INSERT INTO events (batch_id, actor, action) SELECT id, 'kim', 'submitted' FROM batches",
    "INSERT INTO collections (name, embedding_model, dimension) VALUES ('c', 'local/m', 3)",
    "INSERT INTO collection_aliases (name, target) VALUES ('a', 'c')",
    "INSERT INTO ingest_files (ingest_id, collection, path) VALUES ('i', 'c', '/p')",
    "INSERT INTO documents (collection, source, path, title, content_hash, chunk_ids, embedding_model)"
    " VALUES ('c', 's', '/p', 't', 'h', '{}', 'local/m')",
]


def execute(engine: Engine, *statements: str, **values: Any) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement), values)


def scalars(engine: Engine, query: str, **values: Any) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.scalars(text(query), values))


@pytest.fixture
def scratch(servers: Servers) -> Iterator[tuple[str, Engine]]:
    """URL and engine of a migrated database that a test may take down again."""
    name, url = make_database(servers)
    engine = make_engine(url)
    yield url, engine
    engine.dispose()
    drop_database(servers, name)


def everything(engine: Engine) -> set[str]:
    """Names of all relations, functions and triggers of ours, whatever their kind."""
    return set(
        scalars(
            engine,
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
            " UNION ALL SELECT typname FROM pg_type WHERE typnamespace = 'public'::regnamespace"
            " UNION ALL SELECT tgname FROM pg_trigger WHERE NOT tgisinternal",
        )
    )


# -- the chain --------------------------------------------------------------------------------------------


def test_there_is_one_head_and_one_base() -> None:
    scripts = ScriptDirectory.from_config(migrate.config())
    assert len(scripts.get_heads()) == 1 and len(scripts.get_bases()) == 1
    assert migrate.head_revision() == scripts.get_heads()[0]


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.name)
def test_a_migration_is_named_by_day_explains_itself_and_does_not_wait_for_locks(path: Any) -> None:
    assert re.fullmatch(r"20\d{6}_[a-z0-9_]+\.py", path.name)
    source = path.read_text()
    assert "Why:" in source.split('"""')[1]
    up, down = source.split("def downgrade")
    assert "lock_timeout" in up.split("def upgrade")[1] and "lock_timeout" in down


def test_the_template_sets_a_lock_timeout_both_ways_and_asks_why() -> None:
    template = (migrate.MIGRATIONS / "script.py.mako").read_text()
    assert template.count("SET LOCAL lock_timeout = '5s'") == 2 and "Why:" in template


def test_released_views_are_as_they_were_released() -> None:
    found = {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in sorted((migrate.MIGRATIONS / "views").glob("*.sql"))
    }
    assert {name: found.get(name) for name in RELEASED_VIEWS} == RELEASED_VIEWS
    assert set(found) == set(RELEASED_VIEWS), "a new view file belongs into the list above"


def test_the_seed_fills_every_table(scratch: tuple[str, Engine]) -> None:
    _, engine = scratch
    execute(engine, *SEED)
    for table in Base.metadata.tables:
        assert scalars(engine, f"SELECT count(*) FROM {table}")[0] > 0, table
    assert scalars(engine, "SELECT run_count FROM batches") == [1]
    for view in {re.sub(r"_v\d+\.sql", "", name) for name in RELEASED_VIEWS}:
        scalars(engine, f"SELECT count(*) FROM {view}")


def test_down_to_nothing_and_up_again_with_data_in_every_table(scratch: tuple[str, Engine]) -> None:
    url, engine = scratch
    execute(engine, *SEED)
    before = everything(engine)
    assert {"transitions_p202601", "transitions_no_truncate", "batch_progress", "refuse_change"} <= before
    migrate.downgrade(url, "base")
    assert migrate.current_revision(engine) is None
    assert everything(engine) <= {"alembic_version", "alembic_version_pkc", "_alembic_version"}
    migrate.upgrade(url)
    assert migrate.current_revision(engine) == migrate.head_revision()
    assert {name for name in before if not re.search(r"transitions_p\d|p2026", name)} <= everything(engine)
    execute(engine, *SEED)


def test_the_models_say_the_same_as_the_migrations(scratch: tuple[str, Engine]) -> None:
    _, engine = scratch
    execute(engine, *SEED)  # the partitions of some months are there, too
    command.check(migrate.config(engine))


def test_check_constraints_of_models_and_database_are_the_same(scratch: tuple[str, Engine]) -> None:
    """Alembic's own check does not look at them."""
    _, engine = scratch
    for name, table in Base.metadata.tables.items():
        declared = {str(c.name) for c in table.constraints if type(c).__name__ == "CheckConstraint"}
        found = {
            str(check["name"])
            for check in inspect(engine).get_check_constraints(name)
            if not str(check["name"]).endswith("_not_null")
        }
        assert {f"ck_{name}_{short.removeprefix(f'ck_{name}_')}" for short in declared} == found, name


def test_two_upgrades_at_once_make_one_database(scratch: tuple[str, Engine]) -> None:
    url, engine = scratch
    migrate.downgrade(url, "base")
    code = "import sys; from shared.migrate import upgrade; upgrade(sys.stdin.read())"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    errors = at_once([lambda p=p: p.communicate(url, timeout=60)[1] for p in processes])
    assert [process.returncode for process in processes] == [0, 0], errors
    assert migrate.current_revision(engine) == migrate.head_revision()


# -- partitions -------------------------------------------------------------------------------------------


def test_a_month_is_made_once_by_any_number_of_submitters(database: Engine) -> None:
    def ensure() -> None:
        execute(database, "SELECT ensure_transitions_partition('2031-12-01')", "SELECT pg_sleep(0.05)")

    assert at_once([ensure for _ in range(5)]) == [None] * 5
    ranges = scalars(
        database,
        "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'transitions_p203112'",
    )
    assert ranges == ["FOR VALUES FROM ('2031-12-01') TO ('2032-01-01')"]
    ensure()


def test_two_months_made_at_once_are_both_there(database: Engine) -> None:
    def ensure(month: str) -> None:
        execute(database, f"SELECT ensure_transitions_partition('{month}')")

    assert at_once([lambda m=m: ensure(f"2031-0{m}-01") for m in (1, 2, 3)]) == [None] * 3
    made = scalars(database, "SELECT count(*) FROM pg_class WHERE relname ~ '^transitions_p20310[123]$'")
    assert made == [3]


def test_a_row_without_its_months_partition_is_refused_not_lost(database: Engine) -> None:
    execute(database, *SEED)
    with pytest.raises(Exception, match="no partition"):
        execute(database, SEED[5].replace("2026-01-01", "2030-01-01"))


def test_dropping_a_month_is_how_history_goes(database: Engine) -> None:
    execute(database, *SEED, "DROP TABLE transitions_p202601")
    assert [str(month) for month in scalars(database, "SELECT month FROM transitions")] == ["2026-02-01"]


# -- append-only ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE transitions SET error = 'x'",
        "UPDATE transitions SET status = status",
        "DELETE FROM transitions",
        "DELETE FROM transitions_p202601",
        "UPDATE transitions_p202601 SET node = 'x'",
        "TRUNCATE transitions",
        "INSERT INTO transitions SELECT * FROM transitions"
        " ON CONFLICT (month, run_id, step, branch, attempt) DO UPDATE SET error = 'x'",
    ],
)
def test_a_transition_is_never_changed(database: Engine, statement: str) -> None:
    execute(database, *SEED)
    with pytest.raises(Exception, match="append-only"):
        execute(database, statement)
    assert scalars(database, "SELECT count(*) FROM transitions WHERE error IS NULL") == [2]


def test_history_survives_its_batch(database: Engine) -> None:
    execute(database, *SEED, "DELETE FROM batches")
    assert scalars(database, "SELECT count(*) FROM transitions") == [2]
    for table in ("runs", "claims", "grades", "model_calls", "web_searches", "retrievals", "batch_rows"):
        assert scalars(database, f"SELECT count(*) FROM {table}") == [0]


def transition(attempt: int, status: str) -> str:
    changed = SEED[5].replace("1, 0, 1, 'retrieve'", f"1, 0, {attempt}, 'retrieve'")
    return changed.replace("'succeeded'", f"'{status}'")


@pytest.mark.parametrize(
    ("status", "taken"),
    [
        ("succeeded", True),
        ("failed", True),
        ("skipped", True),
        ("retried", False),
        ("lost", False),
    ],
)
def test_one_attempt_at_the_most_counts(database: Engine, status: str, taken: bool) -> None:
    execute(database, *SEED)
    if taken:
        with pytest.raises(Exception, match=r"step_branch_idx|one_counts|duplicate key"):
            execute(database, transition(2, status))
    else:
        execute(database, transition(2, status), transition(3, status))


def test_an_attempt_has_one_row(database: Engine) -> None:
    execute(database, *SEED)
    with pytest.raises(Exception, match="duplicate key"):
        execute(database, transition(1, "retried"))


# -- statuses and invariants --------------------------------------------------------------------------------

TABLES_WITH_STATUS = ("batches", "runs", "claims", "model_calls", "web_searches", "ingest_files")


@pytest.mark.parametrize("table", TABLES_WITH_STATUS)
@pytest.mark.parametrize("value", ["nonsense", "", "Open", "RUNNING"])
def test_an_unknown_status_is_refused(database: Engine, table: str, value: str) -> None:
    execute(database, *SEED)
    with pytest.raises(Exception, match=rf"ck_{table}_(status|ended_at_when_ended|lease_when_running)"):
        execute(database, f"UPDATE {table} SET status = :value", value=value)


def test_an_unknown_status_of_a_transition_or_label_of_a_grade_is_refused(database: Engine) -> None:
    execute(database, *SEED)
    with pytest.raises(Exception, match="ck_transitions_status"):
        execute(database, transition(2, "done"))
    with pytest.raises(Exception, match="ck_grades_label"):
        execute(database, "UPDATE grades SET label = 'perhaps'")


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("UPDATE runs SET status = 'answered', ended_at = now()", "answered_has_answer"),
        ("UPDATE runs SET status = 'gave_up', ended_at = now()", "gave_up_has_reason"),
        ("UPDATE runs SET status = 'failed', ended_at = now()", "failed_has_error"),
        ("UPDATE runs SET status = 'answered', answer = 'a'", "ended_at_when_ended"),
        ("UPDATE runs SET status = 'cancelled'", "ended_at_when_ended"),
        ("UPDATE runs SET status = 'running', ended_at = now()", "ended_at_when_ended"),
        ("UPDATE runs SET step = 1", "pending_has_no_step"),
        ("UPDATE batches SET status = 'ended'", "ended_at_when_ended"),
        ("UPDATE batches SET ended_at = now()", "ended_at_when_ended"),
        ("UPDATE batches SET status = 'paused'", "paused_has_reason"),
        (
            "UPDATE batches SET status = 'paused', pause_reason = 'r', ended_at = now()",
            "ended_at_when_ended",
        ),
        ("UPDATE batches SET weight = 'NaN'", "batches_weight"),
        ("UPDATE batches SET weight = 0", "batches_weight"),
        ("UPDATE batches SET max_in_flight = 0", "max_in_flight"),
        ("UPDATE runs SET round = 0", "round_and_steps"),
        ("UPDATE runs SET status = 'running', step = 3, first_step = 5", "round_and_steps"),
        ("UPDATE events SET action = 'eaten'", "events_action"),
        ("UPDATE claims SET status = 'running'", "lease_when_running"),
        ("UPDATE claims SET lease_until = now()", "lease_when_running"),
        ("UPDATE grades SET score = 1.01", "grades_score"),
        ("UPDATE grades SET score = 'NaN'", "grades_score"),
        ("UPDATE batch_rows SET row_number = 0", "row_number"),
        ("UPDATE collections SET dimension = 0", "dimension"),
        (
            transition(2, "lost").replace("now(), now(), 0", "now(), now() - interval '1 s', 0"),
            "ends_after_start",
        ),
    ],
)
def test_what_must_always_hold_is_held_by_the_database(
    database: Engine, statement: str, constraint: str
) -> None:
    execute(database, *SEED)
    with pytest.raises(Exception, match=constraint):
        execute(database, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET status = 'answered', answer = 'a', step = 3, ended_at = now()",
        "UPDATE runs SET status = 'gave_up', reason = 'r', ended_at = now()",
        "UPDATE runs SET status = 'failed', error = 'e', ended_at = now()",
        "UPDATE runs SET status = 'cancelled', ended_at = now()",
        "UPDATE runs SET status = 'running', step = 1",
        "UPDATE batches SET status = 'ended', ended_at = now()",
        "UPDATE batches SET status = 'paused', pause_reason = 'r'",
        "UPDATE runs SET round = 2, step = 4",
        "UPDATE runs SET step = 4, first_step = 5",
        "UPDATE claims SET status = 'running', lease_until = now()",
        "UPDATE grades SET score = NULL",
        "UPDATE grades SET score = 1",
    ],
)
def test_what_is_legal_is_stored(database: Engine, statement: str) -> None:
    execute(database, *SEED, statement)


def test_one_attempt_at_the_most_counts_in_each_round(database: Engine) -> None:
    def of_round(attempt: int, status: str) -> str:
        columns, values = transition(attempt, status).split(") SELECT ")
        return f"{columns}, round) SELECT {values.replace(' FROM batches', ', 2 FROM batches')}"

    execute(database, *SEED)
    execute(database, of_round(2, "failed"), of_round(3, "cancelled"))
    with pytest.raises(Exception, match=r"one_counts|duplicate key"):
        execute(database, of_round(4, "succeeded"))


def test_down_with_batches_that_an_earlier_version_does_not_know(scratch: tuple[str, Engine]) -> None:
    """Paused ones go on, retried runs that are open are cancelled, and of two rounds the later one stays."""
    url, engine = scratch
    second = transition(2, "succeeded").replace("duration_ms)", "duration_ms, round)")
    execute(
        engine,
        *SEED,
        second.replace(", 0 FROM batches", ", 0, 2 FROM batches"),
        transition(3, "cancelled"),
        "UPDATE batches SET status = 'paused', pause_reason = 'r'",
        "UPDATE runs SET status = 'pending', round = 2, step = 4",
    )
    migrate.downgrade(url, "0002_knowledge")
    assert scalars(engine, "SELECT status FROM batches") == ["open"]
    assert scalars(engine, "SELECT status FROM runs") == ["cancelled"]
    assert scalars(engine, "SELECT attempt FROM transitions WHERE month = '2026-01-01'") == [2]
    assert scalars(engine, "SELECT run_id FROM lost_runs") == []
    with pytest.raises(Exception, match="append-only"):
        execute(engine, "DELETE FROM transitions")
    migrate.upgrade(url)
    assert scalars(engine, "SELECT count(*) FROM lost_runs") == [0]


def test_a_call_is_kept_once_but_failures_and_vectors_as_often_as_they_come(database: Engine) -> None:
    execute(database, *SEED)
    again = SEED[8]
    with pytest.raises(Exception, match="uq_model_calls_paid_once"):
        execute(database, again)
    execute(database, *[again.replace("'ok', '1'", "'error', NULL")] * 2)
    execute(database, *[again.replace("'ok', '1'", "'ok', NULL")] * 2)
    with pytest.raises(Exception, match="uq_web_searches_paid_once"):
        execute(database, SEED[9])


def test_a_run_that_is_lost_is_seen(database: Engine) -> None:
    def lost() -> list[Any]:
        return scalars(database, "SELECT what FROM lost_runs")

    execute(database, *SEED)
    assert lost() == []
    execute(database, "UPDATE runs SET status = 'running', step = 1")
    assert lost() == []
    execute(database, "DELETE FROM claims")
    assert lost() == ["running, but nothing is left to do for it"]
    execute(database, "UPDATE batches SET status = 'ended', ended_at = now()")
    assert len(lost()) == 2
    execute(database, "DELETE FROM runs")
    assert sorted(lost()) == [
        "a row of the file points to a run that is not there",
        "submitted 1 runs, but there are 0",
    ]
