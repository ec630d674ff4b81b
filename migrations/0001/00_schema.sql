-- Everything pgsched owns lives in this schema.
CREATE SCHEMA IF NOT EXISTS pgsched;
