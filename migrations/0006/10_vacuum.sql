-- The pruner deletes from these by the thousand: their dead rows go as soon, and as fast, as those of runs. (By default
-- autovacuum waits until a fifth of a table is dead, and rests for 2 ms after every few pages.)
ALTER TABLE pgsched.attempts SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE pgsched.run_logs SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_cost_delay = 0);
ALTER TABLE pgsched.dependencies SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- The ticker writes every job that was due. The setting that goes was PostgreSQL's default.
ALTER TABLE pgsched.jobs SET (autovacuum_vacuum_cost_delay = 0);
ALTER TABLE pgsched.jobs RESET (autovacuum_vacuum_insert_scale_factor);
