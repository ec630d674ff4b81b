# A job is made, changed, run by hand, paused, resumed and deleted.
#   gem install pg && ruby jobs.rb
require "json"
require "pg"

db = PG.connect(ENV.fetch("PGSCHED_DSN", ""))

created = db.exec_params(<<~SQL, ["nightly totals", JSON.generate(order: 7)]).first
  INSERT INTO pgsched.jobs (name, schedule, timezone, task, args)
  VALUES ($1, '0 2 * * *', 'Europe/Berlin', 'orders.total', $2) RETURNING *
SQL
puts "created #{created["schedule"]}"

changed = db.exec_params(
  "UPDATE pgsched.jobs SET schedule = $2, max_attempts = 5 WHERE name = $1 RETURNING *", ["nightly totals", "0 3 * * *"]
).first
puts "changed #{changed["schedule"]}"

# beside its schedule, and with other arguments than the job's if you like
run = db.exec_params("SELECT pgsched.trigger($1)", ["nightly totals"]).getvalue(0, 0)
puts "triggered #{db.exec_params("SELECT state FROM pgsched.runs WHERE id = $1", [run]).getvalue(0, 0)}"

paused = db.exec_params(
  "UPDATE pgsched.jobs SET paused = true, paused_reason = $2 WHERE name = $1 RETURNING *",
  ["nightly totals", "the books are being closed"]
).first
puts "paused #{paused["paused_reason"]}"

# resume_from = 'pause' would let the catch-up policy decide the slots passed over
db.exec_params("UPDATE pgsched.jobs SET paused = false WHERE name = $1", ["nightly totals"])
puts "resumed"

db.exec_params("SELECT pgsched.delete_job($1)", ["nightly totals"])
puts "deleted nightly totals"
