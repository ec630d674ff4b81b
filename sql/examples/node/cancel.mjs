// Cancels a run: at once if it has not begun; a running one is asked to stop.
//   npm install pg && node cancel.mjs 7
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.PGSCHED_DSN });
await db.connect();
const id = process.argv[2];

const { rows } = await db.query("SELECT pgsched.cancel($1, $2) AS what", [id, "ordered by mistake"]);
console.log(rows[0].what ?? "no such run");

const found = await db.query("SELECT state, coalesce(reason, cancel_reason) AS why FROM pgsched.runs WHERE id = $1", [id]);
for (const { state, why } of found.rows) console.log(state, why);
await db.end();
