"""Compare the database's tables with the ones that this version expects (`tables.py`).

Invariant: the tests make the same comparison, so both agree on what counts as a difference.
"""

from __future__ import annotations

from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.connection.transaction_pooling import begin


def drift(conn: Connection[Any]) -> list[str]:
    """Return the differences between the database's tables and this version's, each as one phrase."""
    import sqlalchemy

    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: conn, poolclass=sqlalchemy.StaticPool)
    # SQLAlchemy takes a table that the search path finds for a table without a schema.
    begin(conn)
    try:
        conn.execute("SET LOCAL search_path = pg_catalog")
        with engine.connect() as bind:
            return [describe_difference(difference) for difference in differences(bind)]
    finally:
        conn.rollback()


def differences(bind: Any) -> list[Any]:
    """Return the differences as alembic gives them: what would have to be done to the database.

    Comments are not compared, because they are for people.
    """
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from pgsched.db.schema.table_parts import metadata
    from pgsched.db.schema.tables import runs  # noqa: F401  metadata must hold them

    options = {"include_schemas": True, "version_table_schema": "pgsched", "compare_type": True}
    bind.dialect.supports_comments = False
    # In many versions SQLAlchemy's list lacks our schema, because they leave out names LIKE 'pg_%'.
    bind.dialect.get_schema_names = lambda *_, **__: ["pgsched"]
    return list(compare_metadata(MigrationContext.configure(bind, opts=options), metadata))


def describe_difference(difference: Any) -> str:
    """Describe one difference, which alembic gives as what would have to be done to the database."""
    if isinstance(difference, list):  # changes of one column
        _, _, table, column, *_ = difference[0]
        return f"column {table}.{column} is another than expected"
    what, *about = difference
    thing = about[-1]
    verb = {"add": "is missing", "remove": "is not ours"}.get(what.partition("_")[0], "is another than expected")
    kind = what.partition("_")[2]
    name = f"{about[-2]}.{thing.name}" if kind == "column" else str(getattr(thing, "name", thing))
    if kind == "fk":
        name = f"of {thing.table.name}.{', '.join(thing.column_keys)}"
    return f"{kind} {name} {verb}"
