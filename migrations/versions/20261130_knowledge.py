"""Sites, repositories, descriptions and aliases of collections.

Why: `cragline ingest` takes more than files, so a row of `ingest_files` says what kind of work it is, with
its options. Pruning needs to know what a document was brought in by (`documents.root`). A collection gets
a description, and other names that can be switched from one collection to the next.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002_knowledge"
down_revision = "0001_main_job"
branch_labels = None
depends_on = None

_KINDS = "kind IN ('file', 'site', 'repository', 'prune', 'delete')"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("collections", sa.Column("description", sa.Text(), nullable=True))
    op.create_table(
        "collection_aliases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["target"], ["collections.name"], name=op.f("fk_collection_aliases_target")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_collection_aliases")),
    )
    op.add_column("documents", sa.Column("root", sa.Text(), server_default="", nullable=False))
    op.execute("UPDATE documents SET root = path")  # so far everything was a file
    op.create_index(op.f("ix_documents_collection_root"), "documents", ["collection", "root"], unique=False)
    op.add_column("ingest_files", sa.Column("kind", sa.Text(), server_default="file", nullable=False))
    op.add_column(
        "ingest_files", sa.Column("options", postgresql.JSONB(astext_type=sa.Text()), nullable=True)
    )
    op.add_column(
        "ingest_files", sa.Column("documents_removed", sa.Integer(), server_default="0", nullable=False)
    )
    op.create_check_constraint(op.f("ck_ingest_files_kind"), "ingest_files", _KINDS)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # an older worker would take these for files
    op.execute("DELETE FROM ingest_files WHERE kind <> 'file'")
    op.drop_constraint(op.f("ck_ingest_files_kind"), "ingest_files", type_="check")
    op.drop_column("ingest_files", "documents_removed")
    op.drop_column("ingest_files", "options")
    op.drop_column("ingest_files", "kind")
    op.drop_index(op.f("ix_documents_collection_root"), table_name="documents")
    op.drop_column("documents", "root")
    op.drop_table("collection_aliases")
    op.drop_column("collections", "description")
