"""SQLAlchemy's picture of the tables, for alembic's drift check and the operator's filtered reads."""

from __future__ import annotations

from sqlalchemy import MetaData

metadata = MetaData(schema="pgsched")
