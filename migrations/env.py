"""Alembic's entry: runs the revisions on the connection that pgsched.db.schema.migrate hands over.

The version table lives in schema pgsched, so that one database can hold pgsched and an application with its own
alembic history.
"""

from alembic import context

from pgsched.db.schema.tables import metadata


def include_name(name: str | None, kind: str, _parents: object) -> bool:
    """Compare schema pgsched only: everything else in the database is not ours."""
    return kind != "schema" or name == "pgsched"


options = {
    "target_metadata": metadata,
    "version_table_schema": "pgsched",
    "include_schemas": True,
    "include_name": include_name,
    "compare_server_default": False,
}
if context.is_offline_mode():
    context.configure(dialect_name="postgresql", **options)
else:
    context.configure(connection=context.config.attributes["connection"], **options)
with context.begin_transaction():
    context.run_migrations()
