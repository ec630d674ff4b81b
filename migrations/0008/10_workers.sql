-- The names of the jobs that the worker's code declares; null: it does not say, and may declare any job of its app.
ALTER TABLE pgsched.workers ADD COLUMN declares text[];
ALTER TABLE pgsched.workers ADD CONSTRAINT workers_declares_size CHECK (
    coalesce(pg_column_size(declares), 0) <= 16777216) NOT VALID;
