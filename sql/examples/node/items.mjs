// Items of a queue: a consumer waits for one, and ends it together with what it writes; items are put, given back, counted.
//   npm install pg && node items.mjs
// The table images (id, thumbnail) stands for yours.
import { randomUUID } from "node:crypto";
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.PGSCHED_DSN });
await db.connect();

// The session holds what we get, for 30 s unless we renew it. If we die, our items are handed out again.
const session = randomUUID();
const opened = await db.query("SELECT id FROM pgsched.session_open($1, ttl => '30 s')", [session]);

// You need not listen: it makes the wait shorter. Behind PgBouncer in transaction mode, leave out these three lines.
let wake = () => {};
db.on("notification", () => wake());
await db.query(`LISTEN pgsched_session_${opened.rows[0].id}`);

// A token of your own, a new one for each item. Did no answer arrive? Ask again with it: the answer is the same.
async function next(name, token) {
  for (;;) {
    const woken = new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, 2000).unref();
    });
    const { rows } = await db.query("SELECT id, value FROM pgsched.item_get($1, $2, $3, wait => true)", [
      name,
      token,
      session,
    ]);
    if (rows[0].id !== null) return rows[0];
    await woken;
    await db.query("SELECT FROM pgsched.session_renew($1)", [session]);
  }
}
const token = randomUUID();
const item = await next("thumbnails", token);
console.log("got", item.value.image);

// What we write and the end of the item are one transaction. False: it was lost, and another consumer may have it.
await db.query("BEGIN");
await db.query("UPDATE images SET thumbnail = true WHERE id = $1", [item.value.image]);
const { rows } = await db.query("SELECT pgsched.item_consume($1, $2, $3) AS ours", [item.id, token, session]);
await db.query(rows[0].ours ? "COMMIT" : "ROLLBACK");
console.log(rows[0].ours ? "consumed" : "lost");
await db.query("SELECT pgsched.session_end($1)", [session]);

// The lowest priority number is got first; of one number, what was put first. 100 if none is given.
await db.query("SELECT pgsched.item_put('thumbnails', $1)", [JSON.stringify({ image: 7 })]);
await db.query("SELECT pgsched.item_put('thumbnails', $1, priority => 10)", [JSON.stringify({ image: 8 })]);
await db.query("SELECT pgsched.item_put('thumbnails', $1, priority => 0, delay => '10 min')", [
  JSON.stringify({ image: 9 }),
]);

async function count(name) {
  const { rows } = await db.query("SELECT ready, later, taken FROM pgsched.item_counts($1)", [name]);
  console.log("counts", rows[0].ready, rows[0].later, rows[0].taken);
}
await count("thumbnails");

// Without a session that we have opened, the item has one of its own, which lasts for 30 s.
const other = randomUUID();
const got = await db.query("SELECT id, value FROM pgsched.item_get($1, $2, hold => '30 s', max_attempts => 3)", [
  "thumbnails",
  other,
]);
const { id, value } = got.rows[0]; // id is null where there is none
console.log("got", value.image);
// Every 10 s while we work. Null: it is lost.
const held = await db.query("SELECT pgsched.item_extend($1, $2) AS until", [id, other]);
console.log(held.rows[0].until === null ? "lost" : "extended");
// It has failed: nobody gets it for a minute. After the third time it becomes a dead run.
const back = await db.query("SELECT pgsched.item_give_back($1, $2, delay => '1 min', error => $3) AS ours", [
  id,
  other,
  "no such image",
]);
console.log(back.rows[0].ours ? "given back" : "lost");
const again = await db.query("SELECT pgsched.item_consume($1, $2) AS ours", [id, other]);
console.log(again.rows[0].ours ? "consumed" : "lost");
await count("thumbnails");
await db.end();
