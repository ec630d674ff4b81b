-- job_delete: remove a job. Its unstarted runs are cancelled by a trigger; running ones go on, history stays.
-- params: name text
-- returns: (id, name, running: how many of its runs are still running), or no row
-- locks: that job and its unstarted runs
DELETE FROM pgsched.jobs j WHERE name = %(name)s
RETURNING id, name,
    (SELECT count(*) FROM pgsched.runs r WHERE r.job_id = j.id AND r.phase < 3 AND r.state = 'running') AS running
