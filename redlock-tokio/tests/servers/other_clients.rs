//! What `MIGRATING.md` says of rslock, and of node-redlock, which npm fetches. A line says NOT RUN where that is not
//! possible.

use std::{
    path::PathBuf,
    process::{Child, Command},
    sync::LazyLock,
    time::Duration,
};

use redlock_kit::RedisServers;
use redlock_tokio::Key;
use rslock::LockManager;
use tokio::time::sleep;

use crate::{
    fleet::{clis, each, fleet},
    packages,
    support::{Cli, MS, eventually},
};

/// The prefix of the recipe.
const PREFIX: &str = "lock:";

/// Where node finds node-redlock and ioredis, or why they could not be fetched.
static PACKAGES: LazyLock<Result<PathBuf, String>> =
    LazyLock::new(|| packages::npm().map_err(|error| error.to_string()));

/// A node process, killed when dropped.
struct Script(Child);

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.0.kill(); // An error means that it has ended.
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn rslock_and_this_crate_exclude_each_other() {
    let (servers, [redlock]) = fleet(3).await;
    let old = LockManager::new(servers.urls());
    let ttl = Duration::from_secs(10);

    let guard = redlock.lock("order:42").await.unwrap();
    assert!(old.lock("order:42", ttl).await.is_err());
    guard.release().await;

    let lock = old.lock("order:42", ttl).await.expect("it is free");
    assert!(redlock.try_lock("order:42").await.is_err());
    old.unlock(&lock).await;
    assert!(redlock.lock("order:42").await.is_ok());
}

/// Returns the command of a script that begins with the recipe. Returns `None` if npm fetches nothing.
fn after_recipe(script: &str, servers: &RedisServers) -> Option<Command> {
    let packages = PACKAGES
        .as_ref()
        .inspect_err(|error| println!("NOT RUN: node-redlock because {error}"));
    let page = include_str!("../../MIGRATING.md");
    let mut blocks = page.split("```js\n").skip(1);
    let recipe = blocks.find_map(|it| {
        it.split("```")
            .next()
            .filter(|it| it.contains("retryCount"))
    });
    let mut node = Command::new("node");
    node.arg("-e")
        .arg(format!("{}\n{script}", recipe.expect("the recipe")));
    node.env("NODE_PATH", packages.ok()?);
    node.env("REDLOCK_NODES", servers.urls().join(","));
    Some(node)
}

#[tokio::test]
async fn the_recipe_leaves_no_keys_between_its_attempts() {
    let servers = RedisServers::spawn(5).unwrap();
    let clis = clis(&servers);
    each(&clis[2..], &["SET", "k", "another client"]);
    let script = "acquire('k', 600_000, 600_000).then(() => clients[0].set('acquired', 'yes'));";
    let Some(mut script) = after_recipe(script, &servers) else {
        return;
    };
    let _script = Script(script.spawn().unwrap());

    // Each attempt is a script that sets, and one that deletes.
    eventually("several attempts", || clis[0].comparisons() > 6).await;
    // Three of five are free now. Keys of earlier attempts on the first two would be in the way.
    clis[2].run(&["DEL", "k"]);
    let acquired = || clis[0].get("acquired").is_some();
    eventually("the next attempt acquires the lock", acquired).await;
}

#[tokio::test]
async fn the_recipe_shares_a_lock_with_this_crate() {
    let servers = RedisServers::spawn(5).unwrap();
    let builder = servers.builder().prefix(PREFIX).wait(MS(60_000));
    let redlock = builder.build().await.unwrap();
    let script = "
        async function main() {
          for (let hold = 0; hold < 20; hold += 1) {
            const lock = await acquire(keyOf('a:b\\\\c', '\u{fc}', 7), 60_000, 60_000);
            if ((await clients[0].incr('inside')) !== 1) process.exit(2);
            await new Promise((resolve) => setTimeout(resolve, 5));
            await clients[0].decr('inside');
            await lock.release();
          }
          process.exit(0);
        }
        main();";
    let Some(mut script) = after_recipe(script, &servers) else {
        return;
    };
    let mut script = Script(script.spawn().unwrap());

    let inside = Cli::of(servers.get(0));
    let mut holds = 0;
    let status = loop {
        let guard = redlock.lock(Key::parts([r"a:b\c", "\u{fc}", "7"]).unwrap());
        let guard = guard.await.unwrap();
        assert_eq!(inside.run(&["INCR", "inside"]), "1");
        sleep(MS(5)).await;
        inside.run(&["DECR", "inside"]);
        guard.release().await;
        holds += 1;
        if let Some(status) = script.0.try_wait().unwrap() {
            break status;
        }
        sleep(MS(20)).await;
    };
    assert!(status.success(), "{status}");
    println!("20 holds of node-redlock, and {holds} of this crate");
    let clis = clis(&servers);
    let is_own = |key: &String| key == "inside";
    let is_free = || clis.iter().all(|it| it.locks().keys().all(is_own));
    eventually("no key stays behind", is_free).await;
}
