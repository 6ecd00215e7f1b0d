"""${message}

Why: say what this change is for, and what it does to a table that already holds millions of rows.
(The views of the schema `history` are gone while this runs, and are made anew after it: edit their files in
`migrations/history/` in the same commit. `migrations/history_schema.py` says how.)
"""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    ${downgrades if downgrades else "pass"}
