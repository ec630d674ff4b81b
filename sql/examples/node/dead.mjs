// What went wrong with a run, attempt for attempt; then it is tried again.
//   npm install pg && node dead.mjs 7
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.PGSCHED_DSN });
await db.connect();
const id = process.argv[2];

const run = (await db.query("SELECT state, error FROM pgsched.runs WHERE id = $1", [id])).rows[0];
console.log(run.state, run.error);

// traceback and log_tail, the end of its output, are there, too
const attempts = await db.query("SELECT * FROM pgsched.attempts WHERE run_id = $1 ORDER BY attempt, finished_at", [id]);
for (const { attempt, outcome, error } of attempts.rows) console.log("attempt", attempt, outcome, error);

const retried = await db.query("SELECT pgsched.retry($1) AS state", [id]);
console.log("retried", retried.rows[0].state);
await db.end();
