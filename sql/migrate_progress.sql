-- migrate_progress: how far a session is with the index that it builds.
-- params: pid int: its backend
-- returns: text, one row or none
-- locks: none
SELECT p.phase || CASE WHEN p.blocks_total > 0 THEN format(' (%%s %%%%)', 100 * p.blocks_done / p.blocks_total) ELSE '' END
    || coalesce((SELECT format(', waits for pid %%s (user %%s, %%s): %%s', a.pid, a.usename, a.state,
                               left(regexp_replace(a.query, '\s+', ' ', 'g'), 100))
                 FROM pg_stat_activity a WHERE a.pid = p.current_locker_pid), '')
FROM pg_stat_progress_create_index p WHERE p.pid = %(pid)s
