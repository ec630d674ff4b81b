# What went wrong with a run, attempt for attempt; then it is tried again.
#   gem install pg && ruby dead.rb 7
require "pg"

db = PG.connect(ENV.fetch("PGSCHED_DSN", ""))
id = ARGV.fetch(0)

run = db.exec_params("SELECT state, error FROM pgsched.runs WHERE id = $1", [id]).first
puts "#{run["state"]} #{run["error"]}"

# traceback and log_tail, the end of its output, are there, too
db.exec_params("SELECT * FROM pgsched.attempts WHERE run_id = $1 ORDER BY attempt, finished_at", [id]).each do |attempt|
  puts "attempt #{attempt["attempt"]} #{attempt["outcome"]} #{attempt["error"]}"
end

puts "retried #{db.exec_params("SELECT pgsched.retry($1)", [id]).getvalue(0, 0)}"
