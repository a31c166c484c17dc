"""redis-py's lock, which knows nothing of ours, as a worker of the benchmark `contention`: it does what its
order says from the first line on standard input until that input ends."""

import json
import os
import sys
import threading
import time

import redis

LIMIT_S = 300
END_LIMIT_S = 10
TTL_S = 10

order = json.loads(sys.argv[1])
hold = order["hold"]["secs"] + order["hold"]["nanos"] / 1e9
stopped = threading.Event()


def watchdog():
    stopped.wait(LIMIT_S)
    time.sleep(END_LIMIT_S)
    os._exit(1)


def cycle(client, history):
    asked = time.monotonic_ns()
    while not stopped.is_set():
        # Its own settings: it tries every 100 ms.
        lock = client.lock(order["key"], timeout=TTL_S, blocking_timeout=1)
        if not lock.acquire():
            continue
        entered = time.monotonic_ns()
        time.sleep(hold)
        history["holds"].append({"asked": asked, "entered": entered, "left": time.monotonic_ns()})
        try:
            lock.release()
        except redis.RedisError as error:
            history["failures"] += 1
            history["first_failure"] = history["first_failure"] or f"release: {error}"
        asked = time.monotonic_ns()
    if not history["holds"] or history["holds"][-1]["asked"] != asked:
        history["waiting_since"] = asked


def main():
    client = redis.Redis.from_url(order["urls"][0])
    client.ping()
    threading.Thread(target=watchdog, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.readline()
    histories = [
        {"holds": [], "waiting_since": None, "failures": 0, "first_failure": None}
        for _ in range(order["tasks"])
    ]
    threads = [threading.Thread(target=cycle, args=(client, history)) for history in histories]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stopped.set()
    for thread in threads:
        thread.join()
    print(json.dumps(histories), flush=True)


main()
