# What became of a slot of a job, and why: its own row, or the row of the stretch that it lies in.
#   gem install pg && ruby explain.rb 'nightly totals' '2026-03-29 02:00 Europe/Berlin'
require "pg"

db = PG.connect(ENV.fetch("PGSCHED_DSN", ""))
job, at = ARGV

db.exec_params(<<~SQL, [job, at]).each { |run| puts "#{run["state"]} #{run["why"]}" }
  SELECT CASE WHEN r.scheduled_at = $2 THEN r.state ELSE coalesce(r.covers_state, r.state) END AS state,
    coalesce(r.covers_reason, r.reason, r.error) AS why
  FROM pgsched.jobs j JOIN pgsched.runs r ON r.job_id = j.id
  WHERE j.name = $1 AND (r.scheduled_at = $2 OR $2 BETWEEN r.covers_from AND r.covers_until)
  ORDER BY r.scheduled_at = $2 DESC, r.covers_until - r.covers_from LIMIT 1
SQL

# why nothing is planned, if the job cannot be
db.exec_params("SELECT error FROM pgsched.jobs WHERE name = $1 AND error IS NOT NULL", [job]).each do |broken|
  puts "error #{broken["error"]}"
end
