"""Use the connections of callers: of psycopg, SQLAlchemy and Django."""
