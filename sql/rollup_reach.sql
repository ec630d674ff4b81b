-- rollup_reach: how far the next endings to count reach.
-- params: after text (timestamptz), safe timestamptz, n int
-- returns: (found bigint, until_at timestamptz: the end of the last of them)
-- locks: none
SELECT count(*) AS found, max(finished_at) AS until_at FROM (
    SELECT finished_at FROM pgsched.runs
    WHERE phase >= 3 AND finished_at > %(after)s::timestamptz AND finished_at <= %(safe)s
    ORDER BY finished_at LIMIT %(n)s
) next
