-- How a worker reaches the server: session or transaction, the mode of the pooler in between; null: there is none.
ALTER TABLE pgsched.workers ADD COLUMN pooler text;
