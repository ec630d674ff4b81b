# Cancels a run: at once if it has not begun; a running one is asked to stop.
#   gem install pg && ruby cancel.rb 7
require "pg"

db = PG.connect(ENV.fetch("PGSCHED_DSN", ""))
id = ARGV.fetch(0)

puts db.exec_params("SELECT pgsched.cancel($1, $2)", [id, "ordered by mistake"]).getvalue(0, 0) || "no such run"

db.exec_params("SELECT state, coalesce(reason, cancel_reason) AS why FROM pgsched.runs WHERE id = $1", [id]).each do |run|
  puts "#{run["state"]} #{run["why"]}"
end
