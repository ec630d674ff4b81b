// Runs are enqueued: in a transaction of one's own, with a delay, with a unique key, with an idempotency key.
//   npm install pg && node enqueue.mjs
// The table orders (id, cents) stands for yours.
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.PGSCHED_DSN });
await db.connect();

const state = async (run) => (await db.query("SELECT state FROM pgsched.runs WHERE id = $1", [run])).rows[0]?.state;

// The run is there when the order is, and not before. Its id is a bigint, which pg gives as a string.
async function order(id, cents, end) {
  await db.query("BEGIN");
  await db.query("INSERT INTO orders (id, cents) VALUES ($1, $2)", [id, cents]);
  const { rows } = await db.query("SELECT pgsched.enqueue('orders.total', $1) AS run", [JSON.stringify({ order: id })]);
  await db.query(end);
  return rows[0].run;
}
console.log("committed", await state(await order(7, 1200, "COMMIT")));
console.log("rolled back", (await state(await order(8, 300, "ROLLBACK"))) ?? 0);

const { rows } = await db.query("SELECT pgsched.enqueue('orders.remind', $1, delay => $2) AS run", [
  JSON.stringify({ order: 7 }),
  "1 hour",
]);
console.log("delayed", await state(rows[0].run));

// One unfinished run with this key, however many ask for it.
async function index(args, onConflict) {
  const { rows } = await db.query(
    `SELECT id, how FROM pgsched.enqueue_result('shop.index', $1, unique_key => $2, on_conflict => $3, delay => '5s')`,
    [JSON.stringify(args), "index 3", onConflict],
  );
  return rows[0].how;
}
console.log("unique", await index({ shop: 3 }, "return"));
console.log("unique", await index({ shop: 3 }, "return"));
console.log("unique", await index({ shop: 3, all: true }, "replace"));

// The same request, sent twice, is one run.
for (let sent = 0; sent < 2; sent++) {
  const { rows } = await db.query("SELECT id, how FROM pgsched.enqueue_result('cards.charge', $1, idempotency_key => $2)", [
    JSON.stringify({ order: 7 }),
    "order 7",
  ]);
  console.log("idempotent", rows[0].how);
}
const first = await db.query("SELECT * FROM pgsched.first_result($1)", ["order 7"]);
console.log("first result", first.rows[0].state);
await db.end();
