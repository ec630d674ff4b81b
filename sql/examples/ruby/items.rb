# Items of a queue: a consumer waits for one, and ends it together with what it writes; items are put, given back, counted.
#   gem install pg && ruby items.rb
# The table images (id, thumbnail) stands for yours.
require "json"
require "pg"
require "securerandom"

DB = PG.connect(ENV.fetch("PGSCHED_DSN", ""))

# The session holds what we get, for 30 s unless we renew it. If we die, our items are handed out again.
SESSION = SecureRandom.uuid
number = DB.exec_params("SELECT id FROM pgsched.session_open($1, ttl => '30 s')", [SESSION]).getvalue(0, 0)

# You need not listen: it makes the wait shorter. Behind PgBouncer in transaction mode, leave it out and sleep instead.
DB.exec("LISTEN pgsched_session_#{number}")

# A token of your own, a new one for each item. Did no answer arrive? Ask again with it: the answer is the same.
def next_item(name, token)
  loop do
    answer = DB.exec_params(<<~SQL, [name, token, SESSION]).first
      SELECT id, value FROM pgsched.item_get($1, $2, $3, wait => true)
    SQL
    return answer["id"], JSON.parse(answer["value"]) if answer["id"]
    DB.wait_for_notify(2)
    DB.exec_params("SELECT FROM pgsched.session_renew($1)", [SESSION])
  end
end
token = SecureRandom.uuid
id, value = next_item("thumbnails", token)
puts "got #{value["image"]}"

# What we write and the end of the item are one transaction. False: it was lost, and another consumer may have it.
def ours?(sql, *params)
  DB.exec_params(sql, params).getvalue(0, 0) == "t"
end
DB.transaction do
  DB.exec_params("UPDATE images SET thumbnail = true WHERE id = $1", [value["image"]])
  raise "lost" unless ours?("SELECT pgsched.item_consume($1, $2, $3)", id, token, SESSION)
  puts "consumed"
end
DB.exec_params("SELECT pgsched.session_end($1)", [SESSION])

# The lowest priority number is got first; of one number, what was put first. 100 if none is given.
DB.exec_params("SELECT pgsched.item_put('thumbnails', $1)", [JSON.generate(image: 7)])
DB.exec_params("SELECT pgsched.item_put('thumbnails', $1, priority => 10)", [JSON.generate(image: 8)])
DB.exec_params("SELECT pgsched.item_put('thumbnails', $1, priority => 0, delay => '10 min')", [JSON.generate(image: 9)])

def count(name)
  puts "counts #{DB.exec_params("SELECT ready, later, taken FROM pgsched.item_counts($1)", [name]).values.first.join(" ")}"
end
count("thumbnails")

# Without a session that we have opened, the item has one of its own, which lasts for 30 s.
token = SecureRandom.uuid
got = DB.exec_params(<<~SQL, ["thumbnails", token]).first
  SELECT id, value FROM pgsched.item_get($1, $2, hold => '30 s', max_attempts => 3)
SQL
id = got["id"] # nil where there is none
puts "got #{JSON.parse(got["value"])["image"]}"
# Every 10 s while we work. Nil: it is lost.
puts DB.exec_params("SELECT pgsched.item_extend($1, $2)", [id, token]).getvalue(0, 0) ? "extended" : "lost"
# It has failed: nobody gets it for a minute. After the third time it becomes a dead run.
failed = "SELECT pgsched.item_give_back($1, $2, delay => '1 min', error => $3)"
puts ours?(failed, id, token, "no such image") ? "given back" : "lost"
puts ours?("SELECT pgsched.item_consume($1, $2)", id, token) ? "consumed" : "lost"
count("thumbnails")
