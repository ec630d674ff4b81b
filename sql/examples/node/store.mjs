// Values that programs share: written, changed only if nobody else has changed them, counted, listed, watched, deleted.
//   npm install pg && node store.mjs
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.PGSCHED_DSN });
await db.connect();

// A value is JSON, a version a bigint, which pg gives as a string.
async function put(key, value, expected = null) {
  const { rows } = await db.query("SELECT pgsched.kv_put($1, $2, expected => $3) AS version", [
    key,
    JSON.stringify(value),
    expected,
  ]);
  return rows[0].version;
}
const version = await put("rates/EUR", 1.1);
const read = await db.query("SELECT value FROM pgsched.kv_get($1)", ["rates/EUR"]);
console.log("read", read.rows[0].value);

// Only if it still has the version that we have read. Null: somebody was faster: read it again.
console.log((await put("rates/EUR", 1.12, version)) === null ? "too late" : "changed");
console.log((await put("rates/EUR", 1.13, version)) === null ? "too late" : "changed");

const counted = await db.query("SELECT pgsched.kv_add($1, $2) AS total", ["rates/reads", 2]);
console.log("counted", counted.rows[0].total);

const listed = await db.query("SELECT key, value FROM pgsched.kv_list($1)", ["rates/"]);
for (const { key, value } of listed.rows) console.log("listed", key, value);

// What has changed since a version, in its order. Ask again with upto; skipped: read the keys anew, with kv_list.
const changes = await db.query("SELECT upto, skipped, key, value FROM pgsched.kv_changes($1, $2)", ["rates/", version]);
for (const { key, value } of changes.rows) if (key !== null) console.log("change", key, value);

const deleted = await db.query("SELECT pgsched.kv_delete($1) AS version", ["rates/EUR"]);
console.log(deleted.rows[0].version === null ? "no such key" : "deleted");
await db.end();
