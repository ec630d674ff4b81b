-- tick_wait: let a batch that was prepared ahead of its instant commit no earlier, and find out whether it was.
-- params: at timestamptz
-- returns: (wait_s float8) seconds until then; negative when it has passed
-- locks: none
SELECT extract(epoch FROM %(at)s::timestamptz - clock_timestamp())::float8 AS wait_s
