// graphile-worker 0.18, with the settings of its own performance test (concurrentJobs 24, maxPoolSize 25, localQueue
// 500 with refetchDelay 10 ms, completeJobBatchDelay 0). Verbs and output are those of bench/peers/verbs.py. Set
// BENCH_LATENCY to leave out the local queue, which its documentation advises against when jobs are few.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import * as readline from "node:readline";

const require = createRequire(process.env.BENCH_PREFIX + "/package.json");
const worker = await import(pathToFileURL(require.resolve("graphile-worker")).href);
const { Pool } = (await import(pathToFileURL(require.resolve("pg")).href)).default;

const [STEP, LEAST_STEP, PERIOD_NS] = [500, 10, 5e7];
const env = process.env;
const number = (name, fallback) => Number(env["BENCH_" + name] ?? fallback);
const say = (values) => process.stdout.write(JSON.stringify(values) + "\n");
const now = () => Number(process.hrtime.bigint());
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
// node-postgres accepts a socket directory only as the option `host`, not in the address.
const address = new URL(env.BENCH_DSN.replace("@/", "@localhost/"));
const pool = new Pool({
  host: address.searchParams.get("host") ?? address.hostname,
  port: Number(address.searchParams.get("port") ?? (address.port || 5432)),
  user: address.username,
  password: decodeURIComponent(address.password) || undefined,
  database: address.pathname.slice(1),
  max: process.argv[2] === "work" ? 25 : 2,
});
const logger = new worker.Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});

const verbs = {
  async setup() {
    await worker.runMigrations({ pgPool: pool, logger });
    say({ ready: true });
    process.exit(0);
  },
  async bulk() {
    const n = number("N", 100000);
    const first = number("FIRST", 0);
    const utils = await worker.makeWorkerUtils({ pgPool: pool, logger });
    const began = now();
    await addMany(utils, first, n);
    say({ n, seconds: (now() - began) / 1e9 });
    process.exit(0);
  },
  async single() {
    const n = number("N", 1000);
    const first = number("FIRST", 0);
    const utils = await worker.makeWorkerUtils({ pgPool: pool, logger });
    for (let i = 0; i < 20; i++) await utils.addJob("noop", { i: first + n + i });
    const began = now();
    for (let i = first; i < first + n; i++) await utils.addJob("noop", { i });
    say({ n, seconds: (now() - began) / 1e9 });
    process.exit(0);
  },
  async trickle() {
    const n = number("N", 2000);
    const period = 1e9 / number("RATE", 100);
    const utils = await worker.makeWorkerUtils({ pgPool: pool, logger });
    for (let i = 0; i < 20; i++) {
      await utils.addJob("noop", { i: n + i });
      await sleep(20);
    }
    const [before, after, start] = [[], [], now() + 2e8];
    for (let i = 0; i < n; i++) {
      const wait = (start + i * period - now()) / 1e6;
      if (wait > 0) await sleep(wait);
      before.push(now());
      await utils.addJob("noop", { i });
      after.push(now());
    }
    say({ before, after });
    process.exit(0);
  },
  async feed() {
    const chunk = number("CHUNK", 1000);
    const utils = await worker.makeWorkerUtils({ pgPool: pool, logger });
    let fed = 0;
    say({ ready: true });
    for await (const _ of readline.createInterface({ input: process.stdin })) {
      await addMany(utils, fed, chunk);
      fed += chunk;
      say({ fed });
    }
    process.exit(0);
  },
  async work() {
    const handler = recorder();
    const batching = env.BENCH_LATENCY ? {} : { localQueue: { size: 500, refetchDelay: { durationMs: 10 } } };
    const limit = number("CONCURRENCY", 24);
    const preset = {
      worker: { concurrentJobs: limit, maxPoolSize: 25, completeJobBatchDelay: 0, failJobBatchDelay: 0, ...batching },
    };
    const runner = await worker.run({ pgPool: pool, logger, preset, taskList: { noop: handler }, noHandleSignals: true });
    await runner.promise;
  },
};

async function addMany(utils, first, n) {
  const jobs = [];
  for (let i = first; i < first + n; i++) jobs.push({ identifier: "noop", payload: { i } });
  await utils.addJobs(jobs);
}

// the counterpart of bench/peers/record.py
function recorder() {
  const n = number("N", 0);
  const pause = number("SLEEP_MS", 0);
  const seen = new Uint8Array(Math.max(1, n));
  const stamps = env.BENCH_STAMPS === "1" ? new Array(n).fill(0) : null;
  let [count, first, next, step, told] = [0, 0, LEAST_STEP, LEAST_STEP, 0];
  readline.createInterface({ input: process.stdin }).on("line", () => {
    const text = Buffer.from(seen).toString("base64");
    say({ end: true, count, first_ns: first, seen: text, stamps: stamps ?? [], late: [] });
  });
  return async ({ i }) => {
    if (count === 0 || stamps) {
      const at = now();
      if (count === 0) {
        first = at;
        say({ n: 0, ns: at });
      }
      if (stamps && i < n && !stamps[i]) stamps[i] = at;
    }
    count += 1;
    if (i < seen.length) seen[i] = Math.min(seen[i] + 1, 255);
    if (count === next) {
      const at = now();
      say({ n: count, ns: at });
      step = Math.min(STEP, Math.max(LEAST_STEP, Math.floor((step * PERIOD_NS) / Math.max(1, at - (told || first)))));
      [next, told] = [count + step, at];
    }
    if (pause) await sleep(pause);
  };
}

await verbs[process.argv[2]]();
