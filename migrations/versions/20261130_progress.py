"""The rate of a batch counts the questions that came to an end of their own.

Why: a cancel ends thousands of questions in a moment, and the rate said that so many were answered a minute.
"""

from pathlib import Path

from alembic import op

revision = "0008_progress"
down_revision = "0007_reuse"
branch_labels = None
depends_on = None

VIEW_FILES = Path(__file__).resolve().parent.parent / "views"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP VIEW batch_progress")
    op.execute((VIEW_FILES / "batch_progress_v5.sql").read_text())


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP VIEW batch_progress")
    op.execute((VIEW_FILES / "batch_progress_v4.sql").read_text())
