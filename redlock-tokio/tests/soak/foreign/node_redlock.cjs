// node-redlock as a client of the soak: it locks the keys of the workers until standard input ends.
"use strict";

const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const order = JSON.parse(process.argv[2]);

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const saw = (what) => say({ Saw: `foreign: ${what}` });
const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis));
const below = (end) => Math.floor(Math.random() * end);

// Nanoseconds of CLOCK_BOOTTIME, as for the workers.
const ahead = BigInt(order.clock_ahead);
const now = () => Number(process.hrtime.bigint() + ahead);

const clients = order.nodes.map((url) => {
  const client = new Redis(url, {
    commandTimeout: 250,
    connectTimeout: 500,
    maxRetriesPerRequest: 1,
    retryStrategy: () => 100,
  });
  client.on("error", () => {}); // Nodes fail all the time.
  return client;
});
const redlock = new Redlock(clients, { retryCount: 0 });
redlock.on("error", () => {});

const store = new Redis(order.store);

let stopped = false;

function keysOfStep() {
  // Four keys are busier than the others.
  const first = below(3) === 0 ? below(4) : below(order.keys);
  const keys = below(4) === 0 ? [first, below(order.keys)] : [first];
  return [...new Set(keys)];
}

// A lock that is none: for the control.
const pretend = (ttl) => ({ expiration: Date.now() + ttl, release: async () => {} });

class Hold {
  constructor(keys, lock) {
    this.keys = keys;
    this.lock = lock;
    this.from = now();
    this.look();
  }

  look() {
    // The clock is read first, and a millisecond is left out, so that the sum is not later than the end.
    const at = now();
    this.valid_until = at + (this.lock.expiration - Date.now() - 1) * 1_000_000;
  }

  async extend(ttl) {
    try {
      this.lock = await this.lock.extend(ttl);
      this.look();
      saw("extension: done");
    } catch {
      saw("extension: failed");
    }
  }

  report() {
    const { keys, from, valid_until } = this;
    if (from < valid_until) {
      const until = Math.min(now(), valid_until);
      say({ Hold: { keys, from, until, valid_until } });
    }
  }
}

async function increment(hold, pause, extension) {
  const read = async (key) => Number((await store.get(`soak:${key}`)) ?? 0);
  const values = await Promise.all(hold.keys.map(read));
  await sleep(pause);
  if (extension) {
    await hold.extend(extension);
  }
  for (const [index, key] of hold.keys.entries()) {
    const deadline = hold.lock.expiration * 1000;
    const names = [`soak:${key}`, `soak:${key}:writes`];
    const written = await store.eval(order.write, 2, ...names, values[index] + 1, deadline);
    saw(written ? "writes" : "writes refused because they were late");
  }
}

async function step() {
  const keys = keysOfStep();
  const ttl = Math.floor(order.max_ttl_ms * (0.5 + Math.random() / 2));
  let lock;
  try {
    lock = order.locks ? await redlock.acquire(keys.map((key) => `soak:${key}`), ttl) : pretend(ttl);
  } catch {
    saw("not acquired");
    return;
  }
  saw("acquired");
  if (keys.length > 1) {
    saw("several keys");
  }
  const hold = new Hold(keys, lock);
  const extension = order.locks && below(5) === 0 ? ttl : 0;
  // Some holds last long enough to meet a fault.
  const longest = below(10) === 0 ? order.max_ttl_ms / 2 : order.longest_pause_ms;
  await increment(hold, Math.random() * longest, extension);
  hold.report();
  if (order.locks) {
    // Too few nodes may answer. The keys then expire.
    await hold.lock.release().catch(() => {});
  }
}

async function task() {
  while (!stopped) {
    await sleep(below(100));
    await step();
  }
}

async function main() {
  process.stdin.resume();
  process.stdin.once("end", () => {
    stopped = true;
  });
  // A machine on which a dozen processes start may be slow.
  const patiently = (act) => act().catch(() => patiently(act));
  await Promise.all(clients.map((client) => patiently(() => client.ping())));
  const lock = await patiently(() => redlock.acquire([`soak:foreign:${process.pid}`], order.max_ttl_ms));
  await lock.release();
  say("Ready");
  await Promise.all(Array.from({ length: order.tasks }, task));
  process.stdout.write("", () => process.exit(0));
}

main();
