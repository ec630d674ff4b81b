// What is refused, and how a program tells it apart: by the SQLSTATE. docs/reference/errors.md has them all.
//   npm install pg && node errors.mjs
// The queue narrow stands for one of yours that is full (max_depth).
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.PGSCHED_DSN });
await db.connect();

function meaning(error) {
  if (error.code === "PS429") return "the queue is full, try later";
  if (error.code === "P0002") return "no such job";
  if (error.code === "23514" && error.schema === "pgsched") return `wrong ${error.column}`;
  if (error.code === "23505" && error.schema === "pgsched") return "there is one already";
  if (error.code === "40001") return "repeat the transaction";
  if (error.code === "42501") return "not allowed";
  if (error.code?.startsWith("22")) return "cannot be read";
  throw error; // the connection, the server, or a mistake of ours
}

async function attempt(statement, values) {
  try {
    await db.query(statement, values);
  } catch (error) {
    console.log(error.code, `${meaning(error)}: ${error.message}`);
  }
}

await attempt("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ($1, $2, 'orders.total')", [
  "hourly totals",
  "99 * * * *",
]);
await db.query("SELECT pgsched.enqueue('shop.index', unique_key => $1)", ["index 4"]);
await attempt("SELECT pgsched.enqueue('shop.index', unique_key => $1, on_conflict => 'reject')", ["index 4"]);
await attempt("SELECT pgsched.trigger($1)", ["weekly totals"]);
await attempt("SELECT pgsched.enqueue('orders.total', queue => $1)", ["narrow"]);
await attempt("SELECT pgsched.enqueue('orders.total', delay => $1)", ["soon"]);
await db.end();
