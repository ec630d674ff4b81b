-- leader_elect: begin a new term. Runs under leader_fence.
-- params: holder text, hostname text, pid int
-- returns: (term bigint, grace_s float8: the longest lease of any worker seen lately; nothing is reaped before that)
-- locks: the new row
INSERT INTO pgsched.leader (term, holder, hostname, pid)
SELECT coalesce(max(term), 0) + 1, %(holder)s, %(hostname)s, %(pid)s FROM pgsched.leader
RETURNING term, (SELECT extract(epoch FROM max(lease))::float8 FROM pgsched.workers
                 WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - interval '1 day') AS grace_s
