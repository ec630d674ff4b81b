-- backfill_add: ask for the slots of a job in [from_at, to_at) once more; the leader is told.
-- params: job_id bigint, job, schedule, timezone text, anchor_at, from_at, to_at timestamptz, mode text,
--         max_active int, reverse boolean, priority smallint, slots bigint (how many there are)
-- returns: id
-- locks: none beyond the new row
INSERT INTO pgsched.backfills (job_id, job, schedule, timezone, anchor_at, from_at, to_at, mode, max_active, reverse,
    priority, slots)
VALUES (%(job_id)s, %(job)s, %(schedule)s, %(timezone)s, %(anchor_at)s, %(from_at)s, %(to_at)s, %(mode)s,
        %(max_active)s, %(reverse)s, %(priority)s, %(slots)s)
RETURNING id, pg_notify('pgsched_leader', 'backfills')
