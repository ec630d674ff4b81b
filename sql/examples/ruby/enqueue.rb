# Runs are enqueued: in a transaction of one's own, with a delay, with a unique key, with an idempotency key.
#   gem install pg && ruby enqueue.rb
# The table orders (id, cents) stands for yours.
require "json"
require "pg"

DB = PG.connect(ENV.fetch("PGSCHED_DSN", ""))

def state(run)
  DB.exec_params("SELECT state FROM pgsched.runs WHERE id = $1", [run]).first&.fetch("state")
end

# The run is there when the order is, and not before.
def order(id, cents)
  DB.exec_params("INSERT INTO orders (id, cents) VALUES ($1, $2)", [id, cents])
  DB.exec_params("SELECT pgsched.enqueue('orders.total', $1)", [JSON.generate(order: id)]).getvalue(0, 0)
end

run = DB.transaction { order(7, 1200) }
puts "committed #{state(run)}"

DB.exec("BEGIN")
run = order(8, 300)
DB.exec("ROLLBACK")
puts "rolled back #{state(run) || 0}"

run = DB.exec_params(
  "SELECT pgsched.enqueue('orders.remind', $1, delay => $2)", [JSON.generate(order: 7), "1 hour"]
).getvalue(0, 0)
puts "delayed #{state(run)}"

# One unfinished run with this key, however many ask for it.
def index(args, on_conflict)
  DB.exec_params(<<~SQL, [JSON.generate(args), "index 3", on_conflict]).first["how"]
    SELECT id, how FROM pgsched.enqueue_result('shop.index', $1, unique_key => $2, on_conflict => $3, delay => '5s')
  SQL
end
puts "unique #{index({ shop: 3 }, "return")}"
puts "unique #{index({ shop: 3 }, "return")}"
puts "unique #{index({ shop: 3, all: true }, "replace")}"

# The same request, sent twice, is one run.
2.times do
  sent = DB.exec_params(<<~SQL, [JSON.generate(order: 7), "order 7"]).first
    SELECT id, how FROM pgsched.enqueue_result('cards.charge', $1, idempotency_key => $2)
  SQL
  puts "idempotent #{sent["how"]}"
end
puts "first result #{DB.exec_params("SELECT * FROM pgsched.first_result($1)", ["order 7"]).first["state"]}"
