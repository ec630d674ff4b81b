// What became of a slot of a job, and why: its own row, or the row of the stretch that it lies in.
//   npm install pg && node explain.mjs 'nightly totals' '2026-03-29 02:00 Europe/Berlin'
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.PGSCHED_DSN });
await db.connect();
const [job, at] = process.argv.slice(2); // a text: a Date has no microseconds, a slot may

const { rows } = await db.query(
  `SELECT CASE WHEN r.scheduled_at = $2 THEN r.state ELSE coalesce(r.covers_state, r.state) END AS state,
     coalesce(r.covers_reason, r.reason, r.error) AS why
   FROM pgsched.jobs j JOIN pgsched.runs r ON r.job_id = j.id
   WHERE j.name = $1 AND (r.scheduled_at = $2 OR $2 BETWEEN r.covers_from AND r.covers_until)
   ORDER BY r.scheduled_at = $2 DESC, r.covers_until - r.covers_from LIMIT 1`,
  [job, at],
);
for (const { state, why } of rows) console.log(state, why ?? "");

// why nothing is planned, if the job cannot be
const broken = await db.query("SELECT error FROM pgsched.jobs WHERE name = $1 AND error IS NOT NULL", [job]);
for (const { error } of broken.rows) console.log("error", error);
await db.end();
