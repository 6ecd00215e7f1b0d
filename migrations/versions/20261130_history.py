"""The schema `history`, in which the history is asked.

Why: the views of `public` change with the program. People's own queries need names that stay, a comment on
every column, and a role that can read them and nothing else. Only the schema is made here; what is in it,
and the role, are remade by every upgrade (`migrations/history_schema.py` says why). It holds no data.
"""

from alembic import op

revision = "0005_history"
down_revision = "0004_limits"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("CREATE SCHEMA IF NOT EXISTS history")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP SCHEMA history")  # refused when somebody has put something of their own into it
