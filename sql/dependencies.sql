-- Runs that wait for other runs.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: admit_dependents
-- decide about runs that wait for other runs, by their edges. All edges met: the run becomes claimable, or waits for
-- its own later time, its limits, or the overlap policy that also keeps it waiting. One edge failed, or all of those of
-- which one is enough: the run ends. With it end all runs below it that would end for that reason; each names its
-- parent. A slot of a job is skipped, any other run is cancelled.
-- params: ids bigint[]: the runs to decide about
-- returns: (ready bigint, ended bigint, notified bigint)
-- locks: row locks on the runs that end, skipping locked ones: these are found again by their parents, which have ended
-- Each question costs one probe of an index, however many edges a run has, because it is asked each time that a parent
-- has ended.
WITH RECURSIVE asked AS MATERIALIZED (
    SELECT c.id,
        (SELECT e.parent_id FROM pgsched.dependencies e WHERE e.run_id = c.id AND e.state = 'failed' AND NOT e.any_of
         ORDER BY e.run_id, e.state, e.parent_id LIMIT 1) AS parent_id,
        (SELECT true FROM pgsched.dependencies e WHERE e.run_id = c.id AND e.state = 'open' AND NOT e.any_of
         LIMIT 1) IS NOT NULL AS is_open,
        (SELECT true FROM pgsched.dependencies e WHERE e.run_id = c.id AND e.state = 'met' AND e.any_of
         LIMIT 1) IS NOT NULL AS any_met,
        (SELECT true FROM pgsched.dependencies e WHERE e.run_id = c.id AND e.state = 'open' AND e.any_of
         LIMIT 1) IS NOT NULL AS any_open,
        (SELECT e.parent_id FROM pgsched.dependencies e WHERE e.run_id = c.id AND e.state = 'failed' AND e.any_of
         ORDER BY e.run_id, e.state, e.parent_id LIMIT 1) AS any_parent_id
    FROM unnest(%(ids)s::text::bigint[]) AS c(id)
), judged AS MATERIALIZED (
    -- of those of which one is enough, some are there if one is met, open or failed
    SELECT id, parent_id IS NOT NULL OR any_parent_id IS NOT NULL AND NOT any_met AND NOT any_open AS failed,
        NOT is_open AND (any_met OR NOT any_open AND any_parent_id IS NULL) AS met,
        least(parent_id, any_parent_id) AS parent_id
    FROM asked
), free AS MATERIALIZED (
    SELECT r.id, b.not_before, coalesce(b.not_before > clock_timestamp(), false) AS later,
        coalesce(r.options ? 'overlap', false) AS overlap, pgsched.is_limited(r.queue, r.concurrency_key) AS limited
    FROM judged j JOIN pgsched.runs r ON r.id = j.id
    CROSS JOIN LATERAL (SELECT CASE WHEN r.options ? 'not_before' THEN pgsched.not_before_of(r.options) END) b(not_before)
    WHERE j.met AND NOT j.failed AND r.phase = 0 /* waiting */ AND r.available_at >= '8999-01-01 00:00Z'
), ready AS (
    UPDATE pgsched.runs r SET
        options = CASE jsonb_typeof(r.options) WHEN 'object'
                  THEN nullif(r.options - '{not_before,overlap,after_jobs,after_match}'::text[], '{}') END,
        available_at = greatest(clock_timestamp(), f.not_before),
        state = CASE WHEN f.overlap THEN 'waiting' WHEN f.later THEN 'scheduled' WHEN f.limited THEN 'waiting'
                     ELSE 'queued' END,
        phase = CASE WHEN f.overlap THEN 0 WHEN f.later THEN 1 WHEN f.limited THEN 0 ELSE 2 END,
        ready_at = CASE WHEN f.limited AND NOT f.overlap AND NOT f.later THEN clock_timestamp() END
    FROM free f WHERE r.id = f.id
    RETURNING r.queue, r.state
), woken AS (
    SELECT pgsched.notify('pgsched_runs', pgsched.queue_mark(queue)) FROM (SELECT DISTINCT queue FROM ready WHERE state = 'queued') q
), doomed AS (
    SELECT id, parent_id FROM judged WHERE failed
    UNION
    SELECT d.run_id, d.parent_id FROM doomed CROSS JOIN LATERAL (
        SELECT e.run_id, e.parent_id FROM pgsched.dependencies e
        -- CASE: said plainly it would let the planner take dependencies_unmet, and read all of it for its last column
        WHERE e.parent_id = doomed.id AND e.state = 'open' AND e.on_failure = 'cancel'
          AND CASE WHEN e.any_of THEN false ELSE true END
          AND EXISTS (SELECT FROM pgsched.runs c WHERE c.id = e.run_id AND c.phase = 0 /* waiting */
                      AND c.available_at >= '8998-01-01 00:00Z')
        OFFSET 0) d
), reasons AS MATERIALIZED (
    SELECT id, min(parent_id) AS parent_id FROM doomed GROUP BY id
), held AS MATERIALIZED (
    SELECT r.id FROM pgsched.runs r WHERE r.id = ANY (ARRAY(SELECT id FROM reasons))
      AND r.phase = 0 /* waiting */ AND r.available_at >= '8998-01-01 00:00Z'
    FOR NO KEY UPDATE SKIP LOCKED
), ended AS (
    UPDATE pgsched.runs r SET state = CASE r.origin WHEN 'schedule' THEN 'skipped' ELSE 'cancelled' END,
        finished_at = clock_timestamp(), available_at = clock_timestamp(),
        -- one that ends by this very statement is not seen to have ended
        reason = CASE WHEN p.id IS NULL THEN format('dependency: run %%s is gone', reasons.parent_id)
            ELSE format('dependency: run %%s (%%s) is %%s', p.id, p.task, CASE WHEN p.phase >= 3 /* ended */ THEN p.state
                        WHEN p.origin = 'schedule' THEN 'skipped' ELSE 'cancelled' END) END
    FROM held JOIN reasons ON reasons.id = held.id LEFT JOIN pgsched.runs p ON p.id = reasons.parent_id
    WHERE r.id = held.id
    RETURNING r.id
)
SELECT (SELECT count(*) FROM ready) AS ready, (SELECT count(*) FROM ended) AS ended,
    (SELECT count(*) FROM woken) AS notified


-- name: dependencies_above
-- return the edges by which some runs wait, then the edges of the runs that these wait for, and so on. Decided edges
-- are included, so that a run that has waited for very many runs can be read in pieces too.
-- params: ids bigint[], lowest bigint (edges to older runs are left out), after bigint (of the first of the runs, only
--         edges to later runs than this), n int
-- returns: (run_id, parent_id, open boolean, place: the run's position in ids, 0: a run that these wait for), at most n
--          edges: first those of ids, in that order; the edges of one run together, by parent_id
-- locks: none
WITH RECURSIVE above AS (
    SELECT d.run_id, d.parent_id, d.open, c.place
    FROM ROWS FROM (unnest(%(ids)s::text::bigint[])) WITH ORDINALITY AS c(id, place) CROSS JOIN LATERAL (
        SELECT e.run_id, e.parent_id, e.state = 'open' AS open FROM pgsched.dependencies e
        WHERE e.run_id = c.id
          AND e.parent_id > CASE c.place WHEN 1 THEN %(after)s::bigint ELSE %(lowest)s::bigint - 1 END
        ORDER BY e.run_id, e.parent_id LIMIT %(n)s) d
    UNION
    SELECT d.run_id, d.parent_id, d.open, 0::bigint
    FROM (SELECT DISTINCT a.parent_id AS id FROM above a WHERE a.open) c CROSS JOIN LATERAL (
        SELECT e.run_id, e.parent_id, e.state = 'open' AS open FROM pgsched.dependencies e
        WHERE e.run_id = c.id AND e.parent_id >= %(lowest)s::bigint
        ORDER BY e.run_id, e.parent_id LIMIT %(n)s) d
)
SELECT run_id, parent_id, open, place FROM above LIMIT %(n)s


-- name: dependencies_add
-- add edges.
-- params: parallel arrays run_ids bigint[], parent_ids bigint[], on_failures text[], any_ofs boolean[]
-- returns: nothing
-- locks: the runs that now wait; see migrations/1001_mend/43_dependencies.sql
INSERT INTO pgsched.dependencies (run_id, parent_id, on_failure, any_of)
SELECT run_id, parent_id, on_failure, any_of
FROM ROWS FROM (pg_catalog.unnest(%(run_ids)s::text::bigint[]), pg_catalog.unnest(%(parent_ids)s::text::bigint[]),
    pg_catalog.unnest(%(on_failures)s::text::text[]), pg_catalog.unnest(%(any_ofs)s::text::boolean[]))
    AS e(run_id, parent_id, on_failure, any_of)


-- name: dependencies_backward
-- return the next runs that wait for a later run. The oldest run of a circle is among them, because it waits for a
-- later one.
-- params: after bigint (only greater ids), n int (look at this many)
-- returns: (last bigint: the id after which to continue, null: at the first one; ids bigint[]: the runs that wait for a
--          later one)
-- locks: none
WITH RECURSIVE backward AS (
    (SELECT e.run_id FROM pgsched.dependencies e
     WHERE e.parent_id > e.run_id AND e.state = 'open' AND e.run_id > %(after)s ORDER BY e.run_id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.run_id FROM pgsched.dependencies e
            WHERE e.parent_id > e.run_id AND e.state = 'open' AND e.run_id > b.run_id ORDER BY e.run_id LIMIT 1)
    FROM backward b WHERE b.run_id IS NOT NULL
), looked AS MATERIALIZED (
    SELECT run_id FROM backward WHERE run_id IS NOT NULL LIMIT %(n)s
)
SELECT (SELECT max(run_id) FROM looked HAVING count(*) = %(n)s) AS last, ARRAY(
    SELECT run_id FROM looked
    -- CASE: said plainly it would let the planner take dependencies_pkey, and read all behind that run
    WHERE (SELECT true FROM pgsched.dependencies e WHERE e.parent_id = looked.run_id
           AND CASE WHEN e.run_id > looked.run_id THEN e.state = 'open' END LIMIT 1) AND (SELECT r.phase = 0 /* waiting */ FROM pgsched.runs r WHERE r.id = looked.run_id)
    ORDER BY run_id) AS ids


-- name: dependencies_begin
-- mark a run with too many edges to look at at once. The mark stays until all of them have been looked at. A new edge
-- removes it (pgsched.dependencies_after_insert).
-- params: id bigint
-- returns: nothing
-- locks: that run, which dependencies_fresh has locked
UPDATE pgsched.runs SET available_at = '8999-01-02 00:00Z' WHERE id = %(id)s


-- name: dependencies_begin_again
-- reset the runs of which a former leader had looked at some edges, because it is not known at which.
-- params: none
-- returns: nothing
-- locks: those runs, skipping locked ones
WITH begun AS MATERIALIZED (
    SELECT id FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NULL AND available_at = '8999-01-02 00:00Z'
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgsched.runs r SET available_at = '8999-01-01 00:00Z' FROM begun WHERE r.id = begun.id


-- name: dependencies_complete
-- watch a run of which all edges have been looked at, if no edge was added in the meantime.
-- params: id bigint
-- returns: id, or no row: the run has more edges, or has ended, or is locked
-- locks: that run, unless another transaction has it locked
WITH begun AS MATERIALIZED (
    SELECT id FROM pgsched.runs WHERE id = %(id)s AND state = 'waiting' AND available_at = '8999-01-02 00:00Z'
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pgsched.runs r SET available_at = '9000-01-01 00:00Z' FROM begun WHERE r.id = begun.id RETURNING r.id


-- name: dependencies_edges
-- return the first open edges of some runs. This is a statement of its own after the runs are locked: a transaction
-- that adds an edge has locked its run, so no edge is missed. And it comes before the parents are locked: in the same
-- statement, the edges would be read again for each parent that a worker is writing.
-- params: ids bigint[] (in the order in which to look at them), after bigint (only parents with a greater id), n int
-- returns: (run_id, parent_id: null if there is none, unmarked: the parent is not marked yet), at most n edges
-- locks: none
SELECT c.id AS run_id, d.parent_id, coalesce(d.unmarked, false) AS unmarked
FROM unnest(%(ids)s::text::bigint[]) AS c(id)
LEFT JOIN LATERAL (
    SELECT e.parent_id, (SELECT p.has_children IS NOT TRUE FROM pgsched.runs p WHERE p.id = e.parent_id) AS unmarked
    FROM pgsched.dependencies e WHERE e.run_id = c.id AND e.state = 'open' AND e.parent_id > %(after)s
    ORDER BY e.run_id, e.parent_id LIMIT %(n)s) d ON true
LIMIT %(n)s


-- name: dependencies_end_circle
-- end the oldest run of a circle of runs that wait for each other. For the runs that wait for it, this is an end like
-- any other.
-- params: parallel arrays run_ids, parent_ids (text of bigint[]): the edges of the circle, first the edge to its oldest
--         run
-- returns: id, or no row: one of these edges is not open any more, or the run is locked
-- locks: that run, unless another transaction has it locked
WITH circle AS MATERIALIZED (
    SELECT %(run_ids)s::text::bigint[] AS run_ids, %(parent_ids)s::text::bigint[] AS parent_ids
), held AS MATERIALIZED (
    SELECT r.id FROM pgsched.runs r WHERE r.id = (SELECT c.parent_ids[1] FROM circle c)
        AND r.phase = 0 /* waiting */ AND r.available_at >= '8999-01-01 00:00Z'
    FOR NO KEY UPDATE SKIP LOCKED
), broken AS MATERIALIZED (
    SELECT true AS found FROM ROWS FROM (unnest((SELECT c.run_ids FROM circle c)), unnest((SELECT c.parent_ids FROM circle c)))
        AS e(run_id, parent_id)
    WHERE (SELECT d.state = 'open' FROM pgsched.dependencies d WHERE d.run_id = e.run_id AND d.parent_id = e.parent_id)
        IS NOT TRUE LIMIT 1
)
UPDATE pgsched.runs r SET state = CASE r.origin WHEN 'schedule' THEN 'skipped' ELSE 'cancelled' END,
    finished_at = clock_timestamp(), available_at = clock_timestamp(),
    reason = format('dependency: run %%s (%%s) and this one wait for each other', other.id, other.task)
FROM held JOIN pgsched.runs other ON other.id = (SELECT c.run_ids[1] FROM circle c)
WHERE r.id = held.id AND (SELECT b.found FROM broken b) IS NULL
RETURNING r.id


-- name: dependencies_fresh
-- lock runs whose edges are new.
-- params: after bigint (only greater ids), n int (at most this many), aside bigint[] as text (runs to leave out)
-- returns: id of each, the smallest first
-- locks: row locks on those runs, skipping locked ones
SELECT id FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NULL
    AND available_at = '8999-01-01 00:00Z' AND id > %(after)s
    AND id <> ALL (%(aside)s::text::bigint[])
ORDER BY available_at, id LIMIT %(n)s FOR NO KEY UPDATE SKIP LOCKED


-- name: dependencies_watch
-- mark the parents that runs wait for, so that their end wakes the leader, and watch the runs from now on. A run stays
-- new while one of its parents is locked.
-- params: ids bigint[]: the runs, which dependencies_fresh has locked; parallel arrays run_ids bigint[], parent_ids
--         bigint[]: the edges to parents that are not marked yet
-- returns: (watched bigint: how many; missed bigint[]: the parents that are locked)
-- locks: row locks on the parents, skipping locked ones. One update does both, because a run may be a child and a
--        parent.
WITH marked AS MATERIALIZED (
    SELECT id FROM pgsched.runs WHERE id = ANY (%(parent_ids)s::text::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
), missed AS MATERIALIZED (
    SELECT e.run_id, e.parent_id
    FROM unnest(%(run_ids)s::text::bigint[], %(parent_ids)s::text::bigint[]) AS e(run_id, parent_id)
    WHERE e.parent_id NOT IN (SELECT id FROM marked)
      AND (SELECT true FROM pgsched.runs p WHERE p.id = e.parent_id) IS NOT NULL
), watched AS (
    SELECT id FROM unnest(%(ids)s::text::bigint[]) AS c(id) EXCEPT SELECT run_id FROM missed
), changed AS (
    SELECT id, bool_or(mark) AS mark, bool_or(watch) AS watch FROM (
        SELECT id, true AS mark, false AS watch FROM marked UNION ALL SELECT id, false, true FROM watched) both_ways
    GROUP BY id
), done AS (
    UPDATE pgsched.runs r SET has_children = CASE WHEN changed.mark THEN true ELSE r.has_children END,
        available_at = CASE WHEN changed.watch THEN '9000-01-01 00:00Z' ELSE r.available_at END
    FROM changed WHERE r.id = changed.id
)
SELECT (SELECT count(*) FROM watched) AS watched, ARRAY(SELECT DISTINCT parent_id FROM missed) AS missed


-- name: dependencies_gone
-- fail the edges to runs that were deleted (run_anyway: meet them), because these will never end.
-- params: after bigint, after_parent bigint (start after this edge), n int (look at this many runs and edges)
-- returns: (last bigint, last_parent bigint: the edge after which to continue, null: at the first one; ids bigint[]:
--          the runs that have such an edge)
-- locks: row locks on those runs, skipping locked ones
WITH held AS MATERIALIZED (
    SELECT id FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NULL
        AND available_at = '9000-01-01 00:00Z' AND id >= %(after)s
    ORDER BY available_at, id LIMIT %(n)s FOR NO KEY UPDATE SKIP LOCKED
), looked AS MATERIALIZED (
    SELECT d.run_id, d.parent_id FROM held CROSS JOIN LATERAL (
        SELECT e.run_id, e.parent_id FROM pgsched.dependencies e
        WHERE e.run_id = held.id AND e.state = 'open'
          AND e.parent_id > CASE WHEN held.id = %(after)s THEN %(after_parent)s ELSE 0 END
        ORDER BY e.run_id, e.parent_id LIMIT %(n)s) d
    LIMIT %(n)s
), gone AS MATERIALIZED (
    SELECT run_id, parent_id FROM looked WHERE (SELECT true FROM pgsched.runs p WHERE p.id = looked.parent_id) IS NULL
), decided AS (
    UPDATE pgsched.dependencies d SET state = CASE d.on_failure WHEN 'run_anyway' THEN 'met' ELSE 'failed' END
    FROM gone WHERE d.run_id = gone.run_id AND d.parent_id = gone.parent_id
), reached AS (
    SELECT CASE WHEN (SELECT count(*) FROM looked) = %(n)s THEN (SELECT max(run_id) FROM looked)
                ELSE (SELECT max(id) + 1 FROM held HAVING count(*) = %(n)s) END AS run_id
)
SELECT run_id AS last, coalesce((SELECT max(l.parent_id) FROM looked l WHERE l.run_id = reached.run_id), 0) AS last_parent,
    ARRAY(SELECT DISTINCT run_id FROM gone) AS ids
FROM reached


-- name: dependencies_left
-- return the runs that ended because one of these runs did not succeed, and would stay so if only these are revived.
-- params: ids bigint[], n int
-- returns: (id, task, state, job: its name or null), the oldest first; at most n
-- locks: none
WITH RECURSIVE given AS MATERIALIZED (
    SELECT id FROM unnest(%(ids)s::text::bigint[]) AS g(id)
), below AS (
    SELECT d.run_id AS id FROM given CROSS JOIN LATERAL (
        SELECT e.run_id FROM pgsched.dependencies e WHERE e.parent_id = given.id AND e.state <> 'met' OFFSET 0) d
    UNION
    SELECT d.run_id FROM below CROSS JOIN LATERAL (
        SELECT e.run_id FROM pgsched.dependencies e WHERE e.parent_id = below.id AND e.state <> 'met' OFFSET 0) d
)
SELECT r.id, r.task, r.state, j.name AS job
FROM (SELECT id FROM below EXCEPT SELECT id FROM given) b CROSS JOIN LATERAL (
    SELECT * FROM pgsched.runs o WHERE o.id = b.id AND o.phase >= 3 /* ended */ OFFSET 0) r
LEFT JOIN pgsched.jobs j ON j.id = r.job_id
WHERE r.state IN ('skipped', 'cancelled') AND starts_with(r.reason, 'dependency: run ')
ORDER BY r.id LIMIT %(n)s


-- name: dependencies_look
-- check whether there is anything to do for runs that wait for others, so that a round without any costs one statement.
-- params: none
-- returns: (slots, fresh, begun, ended boolean): slots wait for other jobs' slots; runs have new edges; runs have edges
--          of which some were looked at; parents have ended
-- locks: none
SELECT EXISTS (SELECT FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NULL
    AND available_at = '8998-01-01 00:00Z') AS slots,
    EXISTS (SELECT FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NULL
        AND available_at = '8999-01-01 00:00Z') AS fresh,
    EXISTS (SELECT FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NULL
        AND available_at = '8999-01-02 00:00Z') AS begun,
    EXISTS (SELECT FROM pgsched.runs WHERE phase >= 3 /* ended */ AND has_children) AS ended


-- name: dependencies_no_slot
-- skip slots that wait for a slot that will never exist; a run of a backfill is cancelled.
-- params: parallel arrays ids bigint[], job_ids bigint[]: the job without such a slot (0: the jobs wait in a circle;
--         -1: there is no job)
-- returns: nothing; the number of rows says how many
-- locks: those runs
UPDATE pgsched.runs r SET state = CASE r.origin WHEN 'schedule' THEN 'skipped' ELSE 'cancelled' END,
    finished_at = clock_timestamp(), available_at = clock_timestamp(),
    reason = CASE WHEN g.job_id < 0 THEN 'after_jobs: it names no job whose slots this one could wait for'
        WHEN g.job_id = 0 THEN 'after_jobs: its jobs wait for each other'
        WHEN j.id IS NULL THEN format('after_jobs: job %%s is gone', g.job_id)
        WHEN r.options ->> 'after_match' = 'latest' THEN format('after_jobs: job "%%s" has no slot until this one', j.name)
        WHEN r.options ->> 'after_match' = 'since_last' THEN
            format('after_jobs: job "%%s" has not succeeded since the slot before this one', j.name)
        WHEN r.origin = 'backfill' THEN format('after_jobs: job "%%s" has no run of this slot: it has no such slot, or its'
            ' history was pruned (then start the backfill with --with-upstream)', j.name)
        ELSE format('after_jobs: job "%%s" has no such slot', j.name) END
FROM unnest(%(ids)s::text::bigint[], %(job_ids)s::text::bigint[]) AS g(id, job_id)
LEFT JOIN pgsched.jobs j ON j.id = g.job_id
WHERE r.id = g.id AND r.phase = 0 /* waiting */ AND r.available_at = '8998-01-01 00:00Z'


-- name: dependencies_none
-- let slots go on that wait for no other job's slot, as runs whose last edge was met.
-- params: ids bigint[]
-- returns: nothing; the number of rows says how many
-- locks: those runs
UPDATE pgsched.runs r SET available_at = '8999-01-01 00:00Z'
WHERE r.id = ANY (%(ids)s::text::bigint[]) AND r.phase = 0 /* waiting */ AND r.available_at = '8998-01-01 00:00Z'


-- name: dependencies_parents
-- return the runs that a run waited for, with their results.
-- params: id bigint
-- returns: (id, task, state, result, error), the oldest first
-- locks: none
SELECT p.id, p.task, p.state, p.result, p.error
FROM pgsched.dependencies d JOIN pgsched.runs p ON p.id = d.parent_id
WHERE d.run_id = %(id)s ORDER BY p.id


-- name: dependencies_count
-- return how many of these runs have ended, and how many of these did not succeed.
-- params: ids text (an array of bigint)
-- returns: (total, done, failed bigint): runs; ended; ended without success. Pruned runs count as succeeded.
-- locks: none
SELECT count(*) AS total, count(*) FILTER (WHERE r.id IS NULL OR r.phase >= 3 /* ended */) AS done,
    count(*) FILTER (WHERE r.phase >= 3 /* ended */ AND r.state <> 'succeeded') AS failed
FROM unnest(%(ids)s::text::bigint[]) AS given(id) LEFT JOIN LATERAL (
    SELECT * FROM pgsched.runs r WHERE r.id = given.id OFFSET 0) r ON true


-- name: dependencies_release
-- decide the edges of runs that have ended. A success meets an edge; under run_anyway any end does. Under cancel any
-- other end fails the edge; under wait the edge stays open.
-- params: after bigint (only parents with a greater id), n int (at most this many parents, and twice as many edges),
--         aside bigint[] as text (parents to leave out), act boolean (false: change nothing)
-- returns: (more boolean: something was decided, and there may be more; ids bigint[]: the runs of which edges were
--          decided; last bigint: the greatest id that was looked at, null: there are no more)
-- locks: row locks on those parents and children, skipping locked ones. A parent is looked at again until all its edges
--        are decided.
WITH ended AS MATERIALIZED (
    SELECT id, state FROM pgsched.runs WHERE phase >= 3 /* ended */ AND has_children AND id > %(after)s
      AND id <> ALL (%(aside)s::text::bigint[])
    ORDER BY id LIMIT %(n)s FOR NO KEY UPDATE SKIP LOCKED
), edges AS MATERIALIZED (
    -- lock first, then count: a locked child does not use up a place of those behind it
    SELECT d.run_id, d.parent_id, d.state
    FROM ended CROSS JOIN LATERAL (
        SELECT e.run_id, e.parent_id,
            CASE WHEN ended.state = 'succeeded' OR e.on_failure = 'run_anyway' THEN 'met' ELSE 'failed' END AS state
        FROM pgsched.dependencies e
        WHERE e.parent_id = ended.id AND e.state = 'open' AND (ended.state = 'succeeded' OR e.on_failure <> 'wait')
        OFFSET 0) d
    CROSS JOIN LATERAL (
        SELECT c.id FROM pgsched.runs c WHERE c.id = d.run_id FOR NO KEY UPDATE SKIP LOCKED) free
    LIMIT 2 * %(n)s
), decided AS (
    UPDATE pgsched.dependencies d SET state = edges.state FROM edges
    WHERE d.run_id = edges.run_id AND d.parent_id = edges.parent_id AND %(act)s::boolean
    RETURNING d.run_id
), whole AS MATERIALIZED (
    -- the others have a child that another transaction has locked; no run waits for a child that was deleted by hand
    SELECT ended.id FROM ended WHERE (SELECT count(*) FROM edges) < 2 * %(n)s AND (
        SELECT true FROM pgsched.dependencies e
        WHERE e.parent_id = ended.id AND e.state = 'open' AND (ended.state = 'succeeded' OR e.on_failure <> 'wait')
          AND ((e.run_id, e.parent_id) IN (SELECT f.run_id, f.parent_id FROM edges f)) IS NOT TRUE
          AND (SELECT true FROM pgsched.runs c WHERE c.id = e.run_id) LIMIT 1) IS NULL
), done AS (
    UPDATE pgsched.runs r SET has_children = NULL WHERE r.id = ANY (ARRAY(SELECT id FROM whole)) AND %(act)s::boolean
    RETURNING r.id
)
SELECT ((SELECT count(*) FROM ended) = %(n)s OR (SELECT count(*) FROM edges) = 2 * %(n)s)
        AND (EXISTS (SELECT FROM decided) OR EXISTS (SELECT FROM done)) AS more,
    ARRAY(SELECT DISTINCT run_id FROM decided) AS ids, (SELECT max(id) FROM ended HAVING count(*) = %(n)s) AS last


-- name: dependencies_retry
-- revive every run of a graph that ended without success.
-- params: id bigint
-- returns: (id, state: queued, or waiting for others) of each
-- locks: those runs
SELECT id, state FROM pgsched.retry_tree(%(id)s)


-- name: dependencies_runs
-- make the runs of a graph; those that will wait for others are waiting from the start.
-- params: rows text: a JSON array of objects with the params of `enqueue` and of `enqueue_at_more`, args as a text of
--         JSON, waits boolean, trace
--         text (JSON), and has_children true: the run is marked as a parent from the start, and not by the leader
-- returns: id of each, in the order of the rows, if sorted
-- locks: none but the new rows'
INSERT INTO pgsched.runs (task, args, queue, priority, max_attempts, timeout, tags, concurrency_key, has_children,
    kill_after, backoff, backoff_base, backoff_max, backoff_jitter, keep, expires_at, state, available_at, options)
SELECT w.task, w.args::jsonb, w.queue, w.priority, w.max_attempts, w.timeout, w.tags, w.concurrency_key, w.has_children,
    w.kill_after, w.backoff, w.backoff_base, w.backoff_max, w.backoff_jitter, w.keep,
    coalesce(w.expires_at, coalesce(w.due, pg_catalog.clock_timestamp()) + w.expires), CASE WHEN w.waits THEN 'waiting' ELSE 'queued' END,
    CASE WHEN w.waits THEN '8999-01-01 00:00Z' ELSE coalesce(w.due, pg_catalog.clock_timestamp()) END,
    CASE WHEN w.waits AND w.due > pg_catalog.clock_timestamp() OR w.trace IS NOT NULL THEN
        pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('not_before',
            CASE WHEN w.waits AND w.due > pg_catalog.clock_timestamp() THEN w.due END, 'trace', w.trace::jsonb)) END
FROM (
    SELECT x.*, coalesce(x.at, pg_catalog.clock_timestamp() + x.delay) AS due
    FROM ROWS FROM (pg_catalog.jsonb_to_recordset(%(rows)s::text::jsonb) AS (
        task text, args text, queue text, priority smallint, max_attempts integer, timeout interval, tags text[],
        at timestamptz, delay interval, concurrency_key text, waits boolean,
        has_children boolean, trace text, kill_after interval, backoff text, backoff_base interval, backoff_max interval,
        backoff_jitter float8, keep interval, expires_at timestamptz, expires interval)) WITH ORDINALITY
        AS x(task, args, queue, priority, max_attempts, timeout, tags, at, delay, concurrency_key, waits,
             has_children, trace, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, keep, expires_at,
             expires, n)
    ORDER BY x.n
) w
RETURNING id


-- name: dependencies_slots
-- return slots that wait for slots of other jobs (jobs.after_jobs), with the runs that they wait for, as far as these
-- exist. A run that stands for a stretch of slots stands for each of them. Which slots: see jobs.after_match. `latest`:
-- the newest one until this slot. `since_last`: the newest one after the slot before this one (among the newest 2,000)
-- that has succeeded; while there is none, the slot waits as long as one of them is unfinished. Where all have ended
-- without success, it is the newest dead or cancelled one, or else the newest: so the slot ends by an edge, and a retry
-- of the whole graph revives both. Runs that a person made are no slots, and no end of a stretch.
-- A job in mode shadow is not waited for: neither where its slot has no row, nor where that row was skipped, nor where
-- it was decided in mode shadow. With `since_last`, one slot that was decided so is as good as a success.
-- params: after bigint (only waiting slots with a greater id), n int (look at this many), aside bigint[] as text (slots
--         to leave out)
-- returns: (run_id, parents bigint[]: none where all its jobs are in mode shadow; missing bigint: a job that has no such
--          slot and will not have it, or is deleted (-1: the run waits for no job, or is no slot); undecided bigint: how
--          many of the jobs have yet to decide their slot)
-- locks: row locks on the waiting slots, skipping locked ones
WITH held AS MATERIALIZED (
    SELECT id, job_id, scheduled_at AS slot, options, interval_start FROM pgsched.runs
    WHERE phase = 0 /* waiting */ AND ready_at IS NULL AND available_at = '8998-01-01 00:00Z' AND id > %(after)s
      AND id <> ALL (%(aside)s::text::bigint[])
    ORDER BY available_at, id LIMIT %(n)s FOR NO KEY UPDATE SKIP LOCKED
), dated AS MATERIALIZED (
    SELECT h.id, h.slot, h.options, h.options ->> 'after_match' AS match, CASE h.options ->> 'after_match'
        WHEN 'since_last' THEN coalesce(h.interval_start, (
            SELECT greatest(p.scheduled_at, CASE WHEN p.covers_until < h.slot THEN p.covers_until END)
            FROM pgsched.runs p WHERE p.job_id = h.job_id AND p.scheduled_at < h.slot AND p.origin <> 'manual'
            ORDER BY p.job_id DESC, p.scheduled_at DESC LIMIT 1), '-infinity') END AS since
    FROM held h
), asked AS MATERIALIZED (
    -- the later row whose stretch holds the slot; where the very slot is asked for, it nearly always has a row of its own
    SELECT d.id, d.slot, d.match, d.since, a.job_id, CASE WHEN d.match IS NOT NULL THEN (
        SELECT r.id FROM (SELECT b.id, b.covers_from FROM pgsched.runs b
                          WHERE b.job_id = a.job_id AND b.scheduled_at > d.slot AND b.origin <> 'manual'
                          ORDER BY b.job_id, b.scheduled_at LIMIT 1) r WHERE r.covers_from <= d.slot) END AS stretch_id
    FROM dated d LEFT JOIN LATERAL pgsched.after_jobs_of(d.options) AS a(job_id) ON true
), wanted AS MATERIALIZED (
    SELECT q.*, CASE q.match
        WHEN 'latest' THEN coalesce(
            (SELECT r.id FROM pgsched.runs r WHERE r.job_id = q.job_id AND r.scheduled_at = q.slot AND r.origin <> 'manual'),
            q.stretch_id,
            (SELECT r.id FROM pgsched.runs r WHERE r.job_id = q.job_id AND r.scheduled_at <= q.slot
                AND r.origin <> 'manual' ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 1))
        WHEN 'since_last' THEN (
            SELECT r.id FROM (
                (SELECT b.id, b.state FROM pgsched.runs b
                 WHERE b.job_id = q.job_id AND b.scheduled_at > q.since AND b.scheduled_at <= q.slot
                 ORDER BY b.job_id DESC, b.scheduled_at DESC LIMIT 2000)
                UNION ALL
                SELECT b.id, b.state FROM pgsched.runs b WHERE b.id = q.stretch_id) r
            WHERE r.state = 'succeeded' LIMIT 1)
        ELSE coalesce(
            (SELECT r.id FROM pgsched.runs r WHERE r.job_id = q.job_id AND r.scheduled_at = q.slot),
            (SELECT r.id FROM (
                (SELECT * FROM pgsched.runs b WHERE b.job_id = q.job_id AND b.scheduled_at < q.slot
                 AND b.origin <> 'manual' ORDER BY b.scheduled_at DESC LIMIT 1)
                UNION ALL
                (SELECT * FROM pgsched.runs b WHERE b.job_id = q.job_id AND b.scheduled_at > q.slot
                 AND b.origin <> 'manual' ORDER BY b.scheduled_at LIMIT 1)) r
             WHERE q.slot BETWEEN r.covers_from AND r.covers_until LIMIT 1)) END AS found_id
    FROM asked q
), decided AS (
    -- a next_run_at that has passed says only that the job is to be planned. What left the mode shadow undecided has its
    -- rows soon
    SELECT w.*, j.mode, coalesce(j.id IS NULL OR w.slot IS NULL OR j.decided_until >= w.slot
        OR j.next_run_at > greatest(w.slot, clock_timestamp())
        OR j.next_run_at IS NULL AND j.error IS NULL AND NOT j.paused, false)
        AND NOT EXISTS (SELECT FROM pgsched.passed_over o WHERE o.job_id = w.job_id AND o.reason = 'shadow'
                        AND o.after_at < w.slot AND o.until_at >= w.slot) AS decided
    FROM wanted w LEFT JOIN pgsched.jobs j ON j.id = w.job_id
), chosen AS (
    -- the newest slot until this one is known only when all of them are decided
    SELECT d.*, p.parent_id, p.parent_id IS NULL AND d.match IS NOT DISTINCT FROM 'since_last' AND EXISTS (
            SELECT FROM (SELECT scheduled_at, covers_from FROM pgsched.runs WHERE job_id = d.job_id AND phase < 3 /* open */
                         OFFSET 0) o
            WHERE o.scheduled_at > d.since AND (o.scheduled_at <= d.slot OR o.covers_from <= d.slot)) AS unfinished
    FROM decided d CROSS JOIN LATERAL (
        SELECT CASE WHEN d.match IS DISTINCT FROM 'latest' OR d.decided THEN d.found_id END OFFSET 0) p(parent_id)
), judged AS (
    SELECT c.id, c.job_id, c.match, c.since, c.slot, c.stretch_id, c.parent_id,
        c.parent_id IS NULL AND c.decided AND NOT c.unfinished AS missing,
        coalesce(CASE
            WHEN c.parent_id IS NOT NULL THEN (
                SELECT r.state = 'skipped' AND starts_with(r.reason, 'shadow')
                    OR r.state IN ('skipped', 'missed') AND c.mode = 'shadow'
                FROM pgsched.runs r WHERE r.id = c.parent_id)
            WHEN c.unfinished THEN false
            WHEN c.mode = 'shadow' THEN true
            WHEN c.match = 'since_last' AND c.decided THEN EXISTS (
                SELECT FROM (
                    (SELECT b.state, b.reason FROM pgsched.runs b
                     WHERE b.job_id = c.job_id AND b.scheduled_at > c.since AND b.scheduled_at <= c.slot
                     ORDER BY b.job_id DESC, b.scheduled_at DESC LIMIT 2000)
                    UNION ALL
                    SELECT b.state, b.reason FROM pgsched.runs b WHERE b.id = c.stretch_id) r
                WHERE r.state = 'skipped' AND starts_with(r.reason, 'shadow')) END, false) AS shadow
    FROM chosen c
), given AS (
    SELECT g.id, CASE WHEN NOT g.shadow THEN coalesce(g.parent_id, f.failed_id) END AS parent_id, g.job_id,
        g.missing AND NOT g.shadow AND f.failed_id IS NULL AS missing, g.shadow
    FROM judged g CROSS JOIN LATERAL (SELECT CASE WHEN g.missing AND NOT g.shadow AND g.match = 'since_last' THEN (
        SELECT r.id FROM (
            (SELECT b.id, b.state, b.scheduled_at FROM pgsched.runs b
             WHERE b.job_id = g.job_id AND b.scheduled_at > g.since AND b.scheduled_at <= g.slot
             ORDER BY b.job_id DESC, b.scheduled_at DESC LIMIT 2000)
            UNION ALL
            SELECT b.id, b.state, b.scheduled_at FROM pgsched.runs b WHERE b.id = g.stretch_id) r
        ORDER BY r.state IN ('dead', 'cancelled') DESC, r.scheduled_at DESC LIMIT 1) END AS failed_id OFFSET 0) f
)
SELECT id AS run_id, coalesce(array_agg(parent_id) FILTER (WHERE parent_id IS NOT NULL), '{}') AS parents,
    CASE WHEN bool_or(missing) THEN coalesce(min(job_id) FILTER (WHERE missing), -1) END AS missing,
    count(*) FILTER (WHERE parent_id IS NULL AND NOT missing AND NOT shadow) AS undecided
FROM given GROUP BY id


-- name: dependencies_tree
-- return the graph that a run belongs to.
-- params: id bigint
-- returns: one row for each run, the oldest first: (id, state, task, queue, attempt, max_attempts, started_at,
--          finished_at, reason, error, parents jsonb: [{id, on_failure, any_of, state}], now); a pruned run has only an
--          id
-- locks: none
SELECT g.id, r.state, r.task, r.queue, r.attempt, r.max_attempts, r.started_at, r.finished_at, r.reason, r.error,
    (SELECT coalesce(jsonb_agg(jsonb_build_object('id', d.parent_id, 'on_failure', d.on_failure, 'any_of', d.any_of,
                                                  'state', d.state) ORDER BY d.parent_id), '[]')
     FROM pgsched.dependencies d WHERE d.run_id = g.id) AS parents, clock_timestamp() AS now
FROM pgsched.run_graph(%(id)s) AS g(id) LEFT JOIN LATERAL (
    SELECT * FROM pgsched.runs f WHERE f.id = g.id OFFSET 0) r ON true
ORDER BY g.id


-- name: dependencies_waits
-- return the runs that a run still waits for.
-- params: id bigint
-- returns: parent_id, the oldest first; at most 100
-- locks: none
SELECT d.parent_id FROM pgsched.dependencies d JOIN pgsched.runs r ON r.id = d.run_id
WHERE d.run_id = %(id)s AND d.state = 'open' AND r.state = 'waiting' ORDER BY d.parent_id LIMIT 100
