# What is refused, and how a program tells it apart: by the SQLSTATE. docs/reference/errors.md has them all.
#   gem install pg && ruby errors.rb
# The queue narrow stands for one of yours that is full (max_depth).
require "pg"

DB = PG.connect(ENV.fetch("PGSCHED_DSN", ""))

def meaning(error)
  ours = error.result.error_field(PG::PG_DIAG_SCHEMA_NAME) == "pgsched"
  case error.result.error_field(PG::PG_DIAG_SQLSTATE)
  when "PS429" then "the queue is full, try later"
  when "P0002" then "no such job"
  when "23514" then ours ? "wrong #{error.result.error_field(PG::PG_DIAG_COLUMN_NAME)}" : raise(error)
  when "23505" then ours ? "there is one already" : raise(error)
  when "40001" then "repeat the transaction"
  when "42501" then "not allowed"
  when /\A22/ then "cannot be read"
  else raise error # the connection, the server, or a mistake of ours
  end
end

def attempt(statement, values)
  DB.exec_params(statement, values)
rescue PG::ServerError => e
  code, text = [PG::PG_DIAG_SQLSTATE, PG::PG_DIAG_MESSAGE_PRIMARY].map { |field| e.result.error_field(field) }
  puts "#{code} #{meaning(e)}: #{text}"
end

attempt("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ($1, $2, 'orders.total')", ["hourly totals", "99 * * * *"])
DB.exec_params("SELECT pgsched.enqueue('shop.index', unique_key => $1)", ["index 4"])
attempt("SELECT pgsched.enqueue('shop.index', unique_key => $1, on_conflict => 'reject')", ["index 4"])
attempt("SELECT pgsched.trigger($1)", ["weekly totals"])
attempt("SELECT pgsched.enqueue('orders.total', queue => $1)", ["narrow"])
attempt("SELECT pgsched.enqueue('orders.total', delay => $1)", ["soon"])
