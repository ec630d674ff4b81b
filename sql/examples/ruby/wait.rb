# Waits until a run has ended, and says how. Nothing is sent when a run ends: look, and pause longer each time.
#   gem install pg && ruby wait.rb 7
require "pg"

DB = PG.connect(ENV.fetch("PGSCHED_DSN", ""))

def ended(id, within: 600)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + within
  pause = 0.05
  loop do
    run = DB.exec_params("SELECT * FROM pgsched.runs WHERE id = $1", [id]).first or raise "there is no run #{id}"
    return run if run["finished_at"]
    raise "run #{id} is still #{run["state"]}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

    sleep pause
    pause = [pause * 2, 1].min
  end
end

run = ended(ARGV.fetch(0))
puts "#{run["state"]} #{run["result"] || run["error"] || run["reason"]}"
