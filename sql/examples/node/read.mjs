// What a job did, does and will do: its status, its next slots, its newest runs, its slots, and why one of them did not run.
//   npm install pg && node read.mjs 'nightly totals' '2026-03-29 02:00 Europe/Berlin'
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.PGSCHED_DSN });
await db.connect();
const [job, at] = process.argv.slice(2); // a text: a Date has no microseconds, a slot may

// everything as text, as psql shows it
const text = { getTypeParser: () => (value) => value };
async function show(statement, values) {
  const { rows } = await db.query({ text: statement, values, rowMode: "array", types: text });
  for (const row of rows) console.log(row.map((value) => value ?? "").join(" "));
}

await show(
  "SELECT state, next_slot IS NOT NULL AS planned, last_state, late, running, queued, failures FROM pgsched.job_status($1)",
  [job],
);
await show("SELECT slot, local, note FROM pgsched.preview($1, 3)", [job]);
await show("SELECT run, slot, state, took, late, why FROM pgsched.recent_runs($1, 2)", [job]);
await show("SELECT first_slot, last_slot, slots, state, reason FROM pgsched.slots($1, now() - interval '30 days')", [job]);
await show("SELECT pgsched.explain($1, $2)", [job, at]);
await db.end();
