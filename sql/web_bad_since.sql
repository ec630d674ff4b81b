-- web_bad_since: since when so many runs have ended badly, by the index over those.
-- params: until timestamptz (null: now), n int
-- returns: finished_at of the n-th before `until`, or no row where there are fewer
-- locks: none
SELECT finished_at FROM pgsched.runs
WHERE phase = 4 AND (%(until)s::timestamptz IS NULL OR finished_at < %(until)s::timestamptz)
ORDER BY finished_at DESC OFFSET %(n)s LIMIT 1
