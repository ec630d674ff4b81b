-- dependencies_runs: make the runs of a graph; those that will wait for others are born held back.
-- params: rows text: a JSON array of objects with the params of `enqueue`, args as a text of JSON, waits boolean, trace text (JSON), and
--         has_children true: marked from birth, and not by the leader one by one
-- returns: id of each, in the order of the rows, if sorted
-- locks: none but the new rows'
INSERT INTO pgsched.runs (task, args, queue, priority, max_attempts, timeout, tags, concurrency_key, has_children,
    state, available_at, options)
SELECT w.task, w.args::jsonb, coalesce(w.queue, 'default'), coalesce(w.priority, 5), coalesce(w.max_attempts, 3),
    w.timeout, w.tags, w.concurrency_key, w.has_children, CASE WHEN w.waits THEN 'waiting' ELSE 'queued' END,
    CASE WHEN w.waits THEN '8999-01-01 00:00Z' ELSE coalesce(w.due, clock_timestamp()) END,
    CASE WHEN w.waits AND w.due > clock_timestamp() OR w.trace IS NOT NULL THEN jsonb_strip_nulls(jsonb_build_object(
        'not_before', CASE WHEN w.waits AND w.due > clock_timestamp() THEN w.due END, 'trace', w.trace::jsonb)) END
FROM (
    SELECT x.*, coalesce(x.at, clock_timestamp() + x.delay) AS due
    FROM ROWS FROM (jsonb_to_recordset(%(rows)s::text::jsonb) AS (
        task text, args text, queue text, priority smallint, max_attempts integer, timeout interval, tags text[],
        at timestamptz, delay interval, concurrency_key text, waits boolean,
        has_children boolean, trace text)) WITH ORDINALITY
        AS x(task, args, queue, priority, max_attempts, timeout, tags, at, delay, concurrency_key, waits,
             has_children, trace, n)
    ORDER BY x.n
) w
RETURNING id
