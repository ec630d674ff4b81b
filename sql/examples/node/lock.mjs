// A lock is taken, after a wait in line; renewed, written under, given back; and what its loss looks like.
//   npm install pg && node lock.mjs
// The table totals (day, cents) stands for yours.
import { randomUUID } from "node:crypto";
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.PGSCHED_DSN });
await db.connect();

// A token of your own, a new one for each grant. Did no answer arrive? Ask again with it: the answer is the same.
const token = randomUUID();

// You need not listen: it makes the wait shorter. Behind PgBouncer in transaction mode, leave out these four lines.
let wake = () => {};
db.on("notification", () => wake());
const session = await db.query("SELECT id FROM pgsched.session_open($1, ttl => '30 s')", [token]);
await db.query(`LISTEN pgsched_session_${session.rows[0].id}`);

// It is ours for 30 s, unless we renew it. After 10 minutes in line we give up.
async function acquire(name) {
  for (;;) {
    const woken = new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, 2000).unref();
    });
    const { rows } = await db.query(
      "SELECT fence, place FROM pgsched.lock_acquire($1, $2, ttl => '30 s', wait => '10 min', note => $3)",
      [name, token, "the night of May 1"],
    );
    if (rows[0].fence !== null) return rows[0].fence;
    if (rows[0].place === null) throw new Error("not in time: others hold it, or stand before us in line");
    await woken; // the next call also renews our place in line
  }
}

const fence = await acquire("totals");
console.log("granted");

// Every 10 s while we work. Null: it is lost.
async function renew(name) {
  const { rows } = await db.query("SELECT pgsched.lock_renew($1, $2) AS until", [name, token]);
  return rows[0].until === null ? "lost" : "renewed";
}
console.log(await renew("totals"));

// What we write is written while we hold the lock, or not at all.
async function write(day, cents) {
  try {
    await db.query("BEGIN");
    await db.query("SELECT pgsched.assert_lock($1, $2)", ["totals", fence]);
    await db.query("INSERT INTO totals (day, cents) VALUES ($1, $2)", [day, cents]);
    await db.query("COMMIT");
    console.log("written", cents);
  } catch (error) {
    await db.query("ROLLBACK");
    if (error.code !== "PS410") throw error;
    console.log(error.code, error.message);
  }
}
await write("2026-05-01", 1200);

const released = await db.query("SELECT pgsched.lock_release($1, $2) AS ours", ["totals", token]);
console.log(released.rows[0].ours ? "given back" : "it was lost before");

// PS410: so it ends if the lease has run out meanwhile, or an operator has broken the lock. Nothing is written.
await write("2026-05-01", 1300);
console.log(await renew("totals"));
await db.end();
