"""Is the schema what this program believes it to be? `tables.py` is compared with the catalog.

The rule: the same comparison as in the tests, so that the two never differ in what they call the same.
"""

from __future__ import annotations

from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.connection.transaction_pooling import begin


def drift(conn: Connection[Any]) -> list[str]:
    """What differs between the database's tables and the ones of this version, each as one phrase."""
    import sqlalchemy

    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: conn, poolclass=sqlalchemy.StaticPool)
    # what is found by the search path is taken for a table of no schema
    begin(conn)
    try:
        conn.execute("SET LOCAL search_path = pg_catalog")
        with engine.connect() as bind:
            return [phrase(difference) for difference in differences(bind)]
    finally:
        conn.rollback()


def differences(bind: Any) -> list[Any]:
    """As alembic gives them: what would have to be done to the database. Comments, for people, are not compared."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from pgsched.db.schema.table_parts import metadata
    from pgsched.db.schema.tables import runs  # noqa: F401  metadata must hold them

    options = {"include_schemas": True, "version_table_schema": "pgsched", "compare_type": True}
    bind.dialect.supports_comments = False
    # SQLAlchemy's list lacks our schema in many versions: they leave out what is LIKE 'pg_%'.
    bind.dialect.get_schema_names = lambda *_, **__: ["pgsched"]
    return list(compare_metadata(MigrationContext.configure(bind, opts=options), metadata))


def phrase(difference: Any) -> str:
    """A difference as alembic gives it: what would have to be done to the database."""
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
