"""Helpers for the table definitions in db/schema: column types, columns and indexes by their purpose."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from sqlalchemy.types import TypeEngine

Instant = TIMESTAMP(timezone=True)
Texts = ARRAY(Text)
Integers = ARRAY(Integer)
Role = String  # SQLAlchemy reads the type `name` as String
Kind = TypeEngine[Any] | type[TypeEngine[Any]]
metadata = MetaData(schema="pgsched")


def need(name: str, kind: Kind) -> Column[Any]:
    """Return a column that is NOT NULL."""
    return Column(name, kind, nullable=False)


def key(name: str, kind: Kind = BigInteger) -> Column[Any]:
    """Return a column of the primary key."""
    return Column(name, kind, primary_key=True)


def partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Return an index over the rows that `where` selects; a column may be an expression."""
    parts = [text(column) if "(" in column else column for column in columns]
    return Index(name, *parts, unique=unique, postgresql_where=text(where))
