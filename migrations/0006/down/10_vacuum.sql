ALTER TABLE pgsched.attempts RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_cost_delay);
ALTER TABLE pgsched.run_logs RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_cost_delay,
    toast.autovacuum_vacuum_scale_factor, toast.autovacuum_vacuum_cost_delay);
ALTER TABLE pgsched.dependencies RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_cost_delay);
ALTER TABLE pgsched.jobs RESET (autovacuum_vacuum_cost_delay);
ALTER TABLE pgsched.jobs SET (autovacuum_vacuum_insert_scale_factor = 0.2);
