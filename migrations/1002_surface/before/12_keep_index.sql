-- When ended runs with a length of their own may go. In UTC, because only there the sum of instant and length is immutable.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_own_keep ON pgsched.runs (((finished_at AT TIME ZONE 'UTC') + keep))
    WHERE keep BETWEEN '0' AND '1000 years' AND finished_at < '9000-01-01 00:00Z'  -- beyond that a sum may be out of range
      AND phase >= 3 /* ended */;
