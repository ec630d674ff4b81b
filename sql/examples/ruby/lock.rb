# A lock is taken, after a wait in line; renewed, written under, given back; and what its loss looks like.
#   gem install pg && ruby lock.rb
# The table totals (day, cents) stands for yours.
require "pg"
require "securerandom"

DB = PG.connect(ENV.fetch("PGSCHED_DSN", ""))

# A token of your own, a new one for each grant. Did no answer arrive? Ask again with it: the answer is the same.
TOKEN = SecureRandom.uuid

# You need not listen: it makes the wait shorter. Behind PgBouncer in transaction mode, leave it out and sleep instead.
session = DB.exec_params("SELECT id FROM pgsched.session_open($1, ttl => '30 s')", [TOKEN]).getvalue(0, 0)
DB.exec("LISTEN pgsched_session_#{session}")

# It is ours for 30 s, unless we renew it. After 10 minutes in line we give up.
def acquire(name)
  loop do
    answer = DB.exec_params(<<~SQL, [name, TOKEN, "the night of May 1"]).first
      SELECT fence, place FROM pgsched.lock_acquire($1, $2, ttl => '30 s', wait => '10 min', note => $3)
    SQL
    return answer["fence"] if answer["fence"]
    raise "not in time: others hold it, or stand before us in line" unless answer["place"]
    DB.wait_for_notify(2) # the next call also renews our place in line
  end
end

fence = acquire("totals")
puts "granted"

# Every 10 s while we work. Nil: it is lost.
def renew(name)
  DB.exec_params("SELECT pgsched.lock_renew($1, $2)", [name, TOKEN]).getvalue(0, 0) ? "renewed" : "lost"
end
puts renew("totals")

# What we write is written while we hold the lock, or not at all.
def write(fence, day, cents)
  DB.transaction do
    DB.exec_params("SELECT pgsched.assert_lock($1, $2)", ["totals", fence])
    DB.exec_params("INSERT INTO totals (day, cents) VALUES ($1, $2)", [day, cents])
  end
  puts "written #{cents}"
rescue PG::ServerError => e
  code, text = [PG::PG_DIAG_SQLSTATE, PG::PG_DIAG_MESSAGE_PRIMARY].map { |field| e.result.error_field(field) }
  raise unless code == "PS410"
  puts "#{code} #{text}"
end
write(fence, "2026-05-01", 1200)

ours = DB.exec_params("SELECT pgsched.lock_release($1, $2)", ["totals", TOKEN]).getvalue(0, 0) == "t"
puts ours ? "given back" : "it was lost before"

# PS410: so it ends if the lease has run out meanwhile, or an operator has broken the lock. Nothing is written.
write(fence, "2026-05-01", 1300)
puts renew("totals")
