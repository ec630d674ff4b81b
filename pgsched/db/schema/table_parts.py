"""The words in which db/schema/tables.py describes the tables: types, and columns and indexes by what they are for."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from sqlalchemy.types import TypeEngine

Instant = TIMESTAMP(timezone=True)
Texts = ARRAY(Text)
Integers = ARRAY(Integer)
Role = String  # what SQLAlchemy takes the type `name` for
Kind = TypeEngine[Any] | type[TypeEngine[Any]]
metadata = MetaData(schema="pgsched")


def need(name: str, kind: Kind) -> Column[Any]:
    """A column that is NOT NULL."""
    return Column(name, kind, nullable=False)


def key(name: str, kind: Kind = BigInteger) -> Column[Any]:
    """A column of the primary key."""
    return Column(name, kind, primary_key=True)


def partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index over the rows that `where` names; a column may be an expression."""
    parts = [text(column) if "(" in column else column for column in columns]
    return Index(name, *parts, unique=unique, postgresql_where=text(where))
