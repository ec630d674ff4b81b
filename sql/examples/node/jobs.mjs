// A job is made, changed, run by hand, paused, resumed and deleted.
//   npm install pg && node jobs.mjs
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.PGSCHED_DSN });
await db.connect();

async function one(statement, values = []) {
  const { rows } = await db.query(statement, values);
  return rows[0];
}

const created = await one(
  `INSERT INTO pgsched.jobs (name, schedule, timezone, task, args)
   VALUES ($1, '0 2 * * *', 'Europe/Berlin', 'orders.total', $2) RETURNING *`,
  ["nightly totals", JSON.stringify({ order: 7 })],
);
console.log("created", created.schedule);

const changed = await one("UPDATE pgsched.jobs SET schedule = $2, max_attempts = 5 WHERE name = $1 RETURNING *", [
  "nightly totals",
  "0 3 * * *",
]);
console.log("changed", changed.schedule);

// beside its schedule, and with other arguments than the job's if you like
const { run } = await one("SELECT pgsched.trigger($1) AS run", ["nightly totals"]);
console.log("triggered", (await one("SELECT state FROM pgsched.runs WHERE id = $1", [run])).state);

const paused = await one("UPDATE pgsched.jobs SET paused = true, paused_reason = $2 WHERE name = $1 RETURNING *", [
  "nightly totals",
  "the books are being closed",
]);
console.log("paused", paused.paused_reason);

// resume_from = 'pause' would let the catch-up policy decide the slots passed over
await db.query("UPDATE pgsched.jobs SET paused = false WHERE name = $1", ["nightly totals"]);
console.log("resumed");

await db.query("SELECT pgsched.delete_job($1)", ["nightly totals"]);
console.log("deleted nightly totals");
await db.end();
