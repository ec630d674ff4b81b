# What a job did, does and will do: its status, its next slots, its newest runs, its slots, and why one of them did not run.
#   gem install pg && ruby read.rb 'nightly totals' '2026-03-29 02:00 Europe/Berlin'
require "pg"

db = PG.connect(ENV.fetch("PGSCHED_DSN", ""))
job, at = ARGV

show = ->(statement, values) { db.exec_params(statement, values).each_row { |row| puts row.join(" ") } }

show.call(<<~SQL, [job])
  SELECT state, next_slot IS NOT NULL AS planned, last_state, late, running, queued, failures FROM pgsched.job_status($1)
SQL
show.call("SELECT slot, local, note FROM pgsched.preview($1, 3)", [job])
show.call("SELECT run, slot, state, took, late, why FROM pgsched.recent_runs($1, 2)", [job])
show.call(<<~SQL, [job])
  SELECT first_slot, last_slot, slots, state, reason FROM pgsched.slots($1, now() - interval '30 days')
SQL
show.call("SELECT pgsched.explain($1, $2)", [job, at])
