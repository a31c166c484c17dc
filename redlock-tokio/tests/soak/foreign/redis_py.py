"""redis-py's `Lock` as a client of the soak: it locks the keys of the workers until standard input ends.

A `Lock` is of one server. So the client takes a `Lock` with one token on each node, and holds the key if a majority
of them was granted in time.
"""

import ctypes
import json
import random
import signal
import sys
import threading
import time
import uuid

import redis

PR_SET_PDEATHSIG = 1

order = json.loads(sys.argv[1])
nodes = [redis.Redis.from_url(url, socket_timeout=0.15, socket_connect_timeout=0.15) for url in order["nodes"]]
store = redis.Redis.from_url(order["store"])
stopped = threading.Event()
output = threading.Lock()


def say(line):
    with output:
        print(json.dumps(line), flush=True)


def saw(what):
    say({"Saw": f"foreign: {what}"})


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Times:
    """The ends of a validity by both clocks, from a time before the nodes were asked."""

    def __init__(self, ttl_ms):
        self.by_wall_us = time.time_ns() // 1000 + ttl_ms * 990 - 2000
        self.by_clock = now() + ttl_ms * 990_000 - 2_000_000


class Hold:
    """A key of which a majority of nodes granted a `Lock`. The control asks no node."""

    def __init__(self, key, ttl_ms):
        self.key, self.ttl_ms, self.token = key, ttl_ms, uuid.uuid4().hex
        self.locks = [
            node.lock(f"soak:{key}", timeout=ttl_ms / 1000, blocking=False, thread_local=False)
            for node in (nodes if order["locks"] else [])
        ]
        self.end = Times(ttl_ms)

    def acquire(self):
        if self.is_granted(lambda lock: lock.acquire(token=self.token)) and now() < self.end.by_clock:
            self.since = now()
            return True
        self.release()
        return False

    def extend(self):
        end = Times(self.ttl_ms)
        if self.is_granted(lambda lock: lock.reacquire()) and now() < self.end.by_clock:
            self.end = end
            saw("extension: done")
        else:
            saw("extension: failed")

    def report(self):
        hold = {"keys": [self.key], "from": self.since, "until": min(now(), self.end.by_clock)}
        if self.since < self.end.by_clock:
            say({"Hold": hold | {"valid_until": self.end.by_clock}})

    def release(self):
        # An attempt without an answer may have been granted.
        for lock in self.locks:
            try:
                lock.do_release(self.token)
            except redis.RedisError:
                pass  # The key expires.

    def is_granted(self, ask):
        votes = 0
        for lock in self.locks:
            try:
                votes += bool(ask(lock))
            except redis.RedisError:
                pass  # Nodes fail all the time.
        return not self.locks or votes > len(self.locks) // 2


def increment(hold):
    name = f"soak:{hold.key}"
    value = int(store.get(name) or 0)
    # Some holds last long enough to meet a fault.
    longest_ms = order["max_ttl_ms"] / 2 if random.randrange(10) == 0 else order["longest_pause_ms"]
    time.sleep(random.random() * longest_ms / 1000)
    if random.randrange(5) == 0:
        hold.extend()
    written = store.eval(order["write"], 2, name, f"{name}:writes", value + 1, hold.end.by_wall_us)
    saw("writes" if written else "writes refused because they were late")


def step():
    # Four keys are busier than the others.
    key = random.randrange(4 if random.randrange(3) == 0 else order["keys"])
    ttl_ms = int(order["max_ttl_ms"] * random.uniform(0.5, 1))
    hold = Hold(key, ttl_ms)
    if not hold.acquire():
        saw("not acquired")
        return
    saw("acquired")
    increment(hold)
    hold.report()
    hold.release()


def task():
    while not stopped.is_set():
        time.sleep(random.random() / 10)
        step()


def main():
    # A stopped process does not notice the end of standard input.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    while not (first := Hold("foreign:redis-py", order["max_ttl_ms"])).acquire():
        pass
    first.release()
    say("Ready")
    tasks = [threading.Thread(target=task) for _ in range(order["tasks"])]
    for it in tasks:
        it.start()
    sys.stdin.read()
    stopped.set()
    for it in tasks:
        it.join()


main()
