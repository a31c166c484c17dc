//! Users with few rights. The lines of `DEPLOYMENTS.md` that create users, and what such a user does.

use std::slice;

use redlock_kit::RedisServer;
use redlock_tokio::{Redlock, ReleaseOutcome};

use super::{Cli, asleep_at, locker, waiting_at, woken};

const PAGE: &str = include_str!("../../DEPLOYMENTS.md");

/// Gives the user `locker` these rights and no others, such as `~* +@all -set`. Returns the URL of this user.
pub(crate) fn limited(server: &RedisServer, rights: &str) -> String {
    let user = ["reset", "on", ">pw"].into_iter();
    let rules: Vec<_> = user.chain(rights.split(' ')).collect();
    Cli::of(server).set_locker(&rules);
    locker(server)
}

/// Credentials in the lines, as a URL has them.
pub(crate) const USER: &str = "locker:secret@";

/// The prefix of the locks in the lines.
pub(crate) const PREFIX: &str = "lock:";

/// Returns the words of the line of the page that has this text.
pub(crate) fn line(text: &str) -> Vec<&'static str> {
    let lines = PAGE.lines().filter(|it| it.starts_with("ACL SETUSER"));
    let lines: Vec<_> = lines.filter(|it| it.contains(text)).collect();
    let [line] = lines[..] else {
        panic!("{text}: {lines:?}");
    };
    line.split_whitespace().collect()
}

/// Creates the user by the line of the page that has this text.
pub(crate) fn create_user(cli: &Cli, text: &str) {
    let line = line(text);
    assert_eq!(cli.run(&line), "OK", "{line:?}");
}

/// Uses each feature, with two clients over the same nodes, of which this server is one.
pub(crate) async fn use_everything(server: &Cli, [redlock, other]: &[Redlock; 2]) {
    let guard = redlock.lock("one").await.unwrap();
    guard.extend().await.unwrap();
    let waiting = asleep_at(slice::from_ref(server), other.lock("one")).await;
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    drop(woken(waiting).await);

    let guard = redlock.lock("one").await.unwrap();
    let inspection = other.inspect("one").await.unwrap();
    assert_eq!(inspection.holders().len(), 1, "{inspection}");
    other.force_unlock(&inspection).await;
    drop(guard);

    for client in [redlock, other] {
        let guard = client.lock("fenced").fenced(true).await.unwrap();
        guard.extend().await.unwrap();
        guard.release().await;
        let guard = client.lock_all(["a", "b", "c"]).await.unwrap();
        guard.extend().await.unwrap();
        guard.release().await;
    }
    read_and_write(server, redlock, other).await;
    for client in [redlock, other] {
        client.shutdown(None).await;
    }
}

/// Reads, writes behind a reader, and downgrades.
async fn read_and_write(server: &Cli, redlock: &Redlock, other: &Redlock) {
    let (ours, theirs) = (redlock.rw_lock("shared"), other.rw_lock("shared"));
    let reader = ours.read().await.unwrap();
    reader.extend().await.unwrap();
    let waiting = waiting_at(slice::from_ref(server), theirs.write()).await;
    reader.release().await;
    let writer = waiting.await.unwrap().unwrap();
    writer.downgrade().await.unwrap();
    drop(ours.try_read().await.unwrap());
    writer.release().await;
}

/// Asserts that no client did what its user may not do.
pub(crate) fn assert_quiet(cli: &Cli) {
    assert_eq!(cli.run(&["ACL", "LOG"]), "");
}
