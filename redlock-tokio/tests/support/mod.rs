//! What the integration tests have in common.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use redlock_tokio::test_util::RedisServer;

pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;

/// A client that knows nothing of locks: `redis-cli`.
pub(crate) struct Cli(Vec<String>);

impl Cli {
    pub(crate) fn of(server: &RedisServer) -> Self {
        Self(vec!["-p".into(), server.port().to_string()])
    }

    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.0.extend(arguments.iter().map(|it| (*it).to_owned()));
        self
    }

    pub(crate) fn run(&self, command: &[&str]) -> String {
        String::from_utf8(self.run_for_bytes(command)).expect("text")
    }

    /// Returns what the server said, without the line's end.
    pub(crate) fn run_for_bytes(&self, command: &[&str]) -> Vec<u8> {
        let output = Command::new("redis-cli")
            .args(&self.0)
            .args(command)
            .output()
            .expect("redis-cli comes with redis-server, see the README");
        let mut said = output.stdout;
        said.pop_if(|last| *last == b'\n');
        said
    }

    pub(crate) fn set(&self, key: &str, value: &str) {
        assert_eq!(self.run(&["SET", key, value]), "OK");
    }

    pub(crate) fn get(&self, key: &str) -> Option<String> {
        Some(self.run(&["GET", key])).filter(|value| !value.is_empty())
    }

    pub(crate) fn pttl(&self, key: &str) -> i64 {
        self.run(&["PTTL", key]).parse().unwrap()
    }
}

/// Waits until something is so; releases reach the nodes in the background.
pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within 5 s: {what}");
        tokio::time::sleep(MS(5)).await;
    }
}

const ROLE: &str = "REDLOCK_TEST_ROLE";

/// What a process prints when it has done what it was started for.
pub(crate) const READY: &str = "ready";

/// In a process that was started by [`in_another_process`], what it was told.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Runs a test of this binary in another process, with a role to play, until it is ready.
pub(crate) fn in_another_process(test: &str, role: &str) -> Child {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test starts once more");
    let output = child.stdout.take().expect("piped");
    let is_ready = BufReader::new(output)
        .lines()
        .map_while(Result::ok)
        .any(|line| line.contains(READY));
    assert!(is_ready, "the other process ended before it was ready");
    child
}
