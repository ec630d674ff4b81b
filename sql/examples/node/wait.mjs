// Waits until a run has ended, and says how. Nothing is sent when a run ends: look, and pause longer each time.
//   npm install pg && node wait.mjs 7
import { setTimeout as pause } from "node:timers/promises";
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.PGSCHED_DSN });
await db.connect();

async function ended(run, within = 600_000) {
  const until = Date.now() + within;
  for (let ms = 50; ; ms = Math.min(ms * 2, 1000)) {
    const { rows } = await db.query(
      "SELECT state, result::text, error, reason, finished_at FROM pgsched.runs WHERE id = $1",
      [run],
    );
    if (rows.length === 0) throw new Error(`there is no run ${run}`);
    if (rows[0].finished_at !== null) return rows[0];
    if (Date.now() > until) throw new Error(`run ${run} is still ${rows[0].state}`);
    await pause(ms);
  }
}

const run = await ended(process.argv[2]);
console.log(run.state, run.result ?? run.error ?? run.reason);
await db.end();
