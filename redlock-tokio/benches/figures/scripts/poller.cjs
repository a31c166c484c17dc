// A client from npm that knows nothing of ours, as a worker of the benchmark `figures`: it does what its order says
// from the first line on standard input until that input ends.
"use strict";

const LIMIT_MS = 300_000;
const END_MS = 200; // for the last hold and its release

const order = JSON.parse(process.argv[2]);
const Redis = require("ioredis");

const nanos = () => Number(process.hrtime.bigint()); // CLOCK_MONOTONIC
const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis));
const hold = order.hold.secs * 1000 + order.hold.nanos / 1e6;
const ttl = 10_000;

const clients = order.urls.map((url) => new Redis(url));

function nodeRedlock() {
  const { default: Redlock } = require("redlock");
  const redlock = new Redlock(clients); // its own settings: 10 retries, 200 ms each, give or take 100
  redlock.on("error", () => {});
  return async (key) => {
    const lock = await redlock.acquire([key], ttl);
    return () => lock.release();
  };
}

function redisSemaphore() {
  const { RedlockMutex, RedlockSemaphore } = require("redis-semaphore");
  const permits = order.access.Permit;
  if (permits) {
    return async (key) => {
      const semaphore = new RedlockSemaphore(clients, key, permits, { lockTimeout: ttl });
      await semaphore.acquire();
      return () => semaphore.release();
    };
  }
  return async (key) => {
    // Its own settings: 10 s, every 10 ms. It puts "mutex:" in front of the key by itself.
    const mutex = new RedlockMutex(clients, key.replace(/^mutex:/, ""), { lockTimeout: ttl });
    await mutex.acquire();
    return () => mutex.release();
  };
}

const acquire = { NodeRedlock: nodeRedlock, RedisSemaphore: redisSemaphore }[order.contestant]();

let stopped = false;
setTimeout(() => process.exit(1), LIMIT_MS).unref();

async function cycle(history) {
  while (!stopped) {
    history.waiting_since ??= nanos();
    let release;
    try {
      // Its time-outs are no failures: it asks again, and waits all the while.
      release = await acquire(order.key);
    } catch {
      await sleep(1);
      continue;
    }
    const asked = history.waiting_since;
    history.waiting_since = null;
    const entered = nanos();
    await sleep(hold);
    history.holds.push({ asked, entered, left: nanos() });
    try {
      await release();
    } catch (error) {
      history.failures += 1;
      history.first_failure ??= `release: ${error}`;
    }
  }
}

async function main() {
  const release = await acquire(`mutex:warm-up:${process.pid}`);
  await release();
  console.log("ready");
  const histories = Array.from({ length: order.tasks }, () => {
    return { holds: [], waiting_since: null, failures: 0, first_failure: null };
  });
  process.stdin.once("data", () => histories.forEach(cycle));
  await new Promise((resolve) => process.stdin.once("end", resolve));
  stopped = true;
  await sleep(END_MS);
  process.stdout.write(JSON.stringify(histories) + "\n", () => process.exit(0));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
