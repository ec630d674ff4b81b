# Values that programs share: written, changed only if nobody else has changed them, counted, listed, watched, deleted.
#   gem install pg && ruby store.rb
require "json"
require "pg"

DB = PG.connect(ENV.fetch("PGSCHED_DSN", ""))

# A value is JSON.
def put(key, value, expected = nil)
  DB.exec_params("SELECT pgsched.kv_put($1, $2, expected => $3)", [key, JSON.generate(value), expected]).getvalue(0, 0)
end
version = put("rates/EUR", 1.1)
puts "read #{JSON.parse(DB.exec_params("SELECT value FROM pgsched.kv_get($1)", ["rates/EUR"]).getvalue(0, 0))}"

# Only if it still has the version that we have read. Nil: somebody was faster: read it again.
puts put("rates/EUR", 1.12, version) ? "changed" : "too late"
puts put("rates/EUR", 1.13, version) ? "changed" : "too late"

puts "counted #{DB.exec_params("SELECT pgsched.kv_add($1, $2)", ["rates/reads", 2]).getvalue(0, 0)}"

DB.exec_params("SELECT key, value FROM pgsched.kv_list($1)", ["rates/"]).each do |row|
  puts "listed #{row["key"]} #{row["value"]}"
end

# What has changed since a version, in its order. Ask again with upto; skipped: read the keys anew, with kv_list.
changes = DB.exec_params("SELECT upto, skipped, key, value FROM pgsched.kv_changes($1, $2)", ["rates/", version])
changes.select { |row| row["key"] }.each { |row| puts "change #{row["key"]} #{row["value"]}" }

puts DB.exec_params("SELECT pgsched.kv_delete($1)", ["rates/EUR"]).getvalue(0, 0) ? "deleted" : "no such key"
