//! Helpers that the integration tests share.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod acl;
pub(crate) mod bed;
#[cfg(feature = "tls-rustls")]
pub(crate) mod certificates;
pub(crate) mod cut;
pub(crate) mod fake;
pub(crate) mod gullible;
pub(crate) mod in_memory;
pub(crate) mod kinds;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod panics;
pub(crate) mod places;
pub(crate) mod scripted;
pub(crate) mod shards;
pub(crate) mod states;

use std::{
    collections::BTreeMap,
    env,
    process::{Command, Output},
    sync::mpsc,
    time::{Duration, Instant},
};

use redlock_kit::{RedisServer, RedisServers, SpawnError, Worker};
use redlock_tokio::{Durability, Lock, LockError, LockGuard, LockOptions, Redlock, RedlockBuilder};
use tokio::task::JoinHandle;

/// Milliseconds.
pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;

/// Builds a client whose nodes accept it.
pub(crate) async fn built(builder: RedlockBuilder) -> Redlock {
    builder.build().await.unwrap()
}

/// Acquires locks one after the other.
pub(crate) async fn acquired<const N: usize>(locks: [Lock; N]) -> [LockGuard; N] {
    let mut guards = Vec::new();
    for lock in locks {
        guards.push(lock.await.unwrap());
    }
    guards.try_into().expect("as many as there are locks")
}

/// Acquires a lock that is not renewed.
pub(crate) async fn unrenewed(lock: Lock) -> LockGuard {
    let lock = lock.options(LockOptions::new().no_renewal());
    lock.await.unwrap()
}

/// Asserts that the text of an error or of a state has these words.
#[track_caller]
pub(crate) fn assert_says(it: &impl ToString, words: &str) {
    let text = it.to_string();
    assert!(text.contains(words), "{text}");
}

/// Returns a builder over servers that have just started for the first time.
pub(crate) fn trusting<S: AsRef<str>>(urls: impl IntoIterator<Item = S>) -> RedlockBuilder {
    Redlock::builder()
        .nodes(urls)
        .durability(Durability::AssumedForTests)
        .node_timeout(MS(500))
}

/// Starts servers that accept `DEBUG`, and `CONFIG SET` for every option. Redis before 7.0 always does, and has no
/// options for this.
pub(crate) fn spawn_unprotected(count: usize, arguments: &[&str]) -> RedisServers {
    let unprotected = [
        ["--enable-debug-command", "yes"],
        ["--enable-protected-configs", "yes"],
    ];
    let with_options = [arguments, unprotected.as_flattened()].concat();
    match RedisServers::spawn_with(count, &with_options) {
        Err(SpawnError::Ended { log }) if log.contains("enable-debug-command") => {
            RedisServers::spawn_with(count, arguments).unwrap()
        }
        outcome => outcome.unwrap(),
    }
}

/// Returns a server's URL for the user `locker` with the password `pw`.
pub(crate) fn locker(server: &RedisServer) -> String {
    server.url().replace("://", "://locker:pw@")
}

/// A foreign client, which knows nothing about locks: `redis-cli`.
pub(crate) struct Cli(Vec<String>);

impl Cli {
    pub(crate) fn of(server: &RedisServer) -> Self {
        Self::at(server.port())
    }

    /// Returns a client that connects to this port, such as a proxy's.
    pub(crate) fn at(port: u16) -> Self {
        Self(vec!["-p".into(), port.to_string()])
    }

    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.0.extend(arguments.iter().map(|it| (*it).to_owned()));
        self
    }

    /// Returns the server's answer without the newline at its end.
    pub(crate) fn run(&self, command: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(&self.0)
            .args(command)
            .output()
            .expect("redis-cli comes with redis-server: make redis");
        let answer = String::from_utf8(output.stdout).expect("text");
        answer.strip_suffix('\n').unwrap_or(&answer).to_owned()
    }

    pub(crate) fn set(&self, key: &str, value: &str) {
        assert_eq!(self.run(&["SET", key, value]), "OK");
    }

    pub(crate) fn configure(&self, option: &str, value: &str) {
        assert_eq!(self.run(&["CONFIG", "SET", option, value]), "OK");
    }

    /// Gives the user `locker` these rights, and takes others.
    pub(crate) fn set_locker(&self, rules: &[&str]) {
        let command = [&["ACL", "SETUSER", "locker"], rules].concat();
        assert_eq!(self.run(&command), "OK", "{command:?}");
    }

    pub(crate) fn set_all(&self, pairs: impl IntoIterator<Item = (String, String)>) {
        let pairs: Vec<_> = pairs.into_iter().collect();
        if !pairs.is_empty() {
            let flat = pairs.iter().flat_map(|(key, value)| [&**key, &**value]);
            let command: Vec<_> = ["MSET"].into_iter().chain(flat).collect();
            assert_eq!(self.run(&command), "OK");
        }
    }

    /// Returns all keys with their values, except fencing counters, and lines, which expire some seconds after a farewell that
    /// was lost.
    pub(crate) fn locks(&self) -> BTreeMap<String, String> {
        let all = "local locks = {} \
             for _, key in ipairs(redis.call('KEYS', '*')) do \
               if string.sub(key, 1, 14) ~= 'redlock:fence:' and string.sub(key, 1, 13) ~= 'redlock:line:' then \
                 table.insert(locks, key) \
                 table.insert(locks, redis.call('GET', key)) \
               end \
             end \
             return locks";
        let answer = self.run(&["EVAL", all, "0"]);
        let lines: Vec<_> = answer.lines().filter(|it| !it.is_empty()).collect();
        let pairs = lines.chunks(2);
        pairs.map(|it| (it[0].into(), it[1].into())).collect()
    }

    pub(crate) fn get(&self, key: &str) -> Option<String> {
        Some(self.run(&["GET", key])).filter(|value| !value.is_empty())
    }

    /// Returns how often the server has carried out a command, for any client. Redis before 7.0 counts all
    /// subcommands of `script` as one command.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let statistics = self.run(&["INFO", "commandstats"]);
        let calls = |name: &str| {
            let prefix = format!("cmdstat_{name}:calls=");
            let rest = statistics.lines().find_map(|it| it.strip_prefix(&prefix))?;
            rest.split(',').next().unwrap().parse().ok()
        };
        let container = command.split('|').next().unwrap();
        calls(command).or_else(|| calls(container)).unwrap_or(0)
    }

    /// Returns whether a client of the server speaks RESP3. Redis before 7.0 does not tell the protocol of a client,
    /// but only a client that speaks RESP3 is notified without a redirection.
    pub(crate) fn has_clients_of_resp3(&self) -> bool {
        let clients = self.run(&["CLIENT", "LIST"]);
        let speaks_resp3 =
            |it: &str| it.contains("resp=3") || it.contains("flags=t") && it.contains("redir=0");
        clients.lines().any(speaks_resp3)
    }

    /// Returns how often the server compared values, which every release and every extension does.
    pub(crate) fn comparisons(&self) -> u64 {
        let commands = ["evalsha", "eval"];
        commands.iter().map(|command| self.calls(command)).sum()
    }

    /// Returns how many connections the server has, including the one of this call.
    pub(crate) fn connections(&self) -> u64 {
        let clients = self.run(&["INFO", "clients"]);
        let count = clients
            .lines()
            .find_map(|line| line.strip_prefix("connected_clients:"));
        count.expect("INFO has it").trim().parse().unwrap()
    }

    pub(crate) fn pttl(&self, key: &str) -> i64 {
        self.run(&["PTTL", key]).parse().unwrap()
    }
}

/// Waits until a condition holds. A release, for example, reaches the nodes in the background. The limit only ends a test
/// that would wait for ever: on a busy machine a replica may take longer than 10 s to copy its master.
pub(crate) async fn eventually(name: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "not within a minute: {name}");
        tokio::time::sleep(MS(5)).await;
    }
}

/// Starts a request for a taken key, and waits until each of these servers has told it how long the key still lives. From
/// then on they notify it of a release.
pub(crate) async fn waiting_at(
    servers: &[Cli],
    lock: Lock,
) -> JoinHandle<Result<LockGuard, LockError>> {
    let looks = |it: &Cli| it.calls("pttl");
    let before: Vec<_> = servers.iter().map(looks).collect();
    let waiting = tokio::spawn(lock.into_future());
    let has_looked = || {
        servers
            .iter()
            .map(looks)
            .zip(&before)
            .all(|(now, before)| now > *before)
    };
    eventually("the waiter looks at the key", has_looked).await;
    waiting
}

/// Starts a request for a taken key, which does not look again while a test lasts, unless it is woken. Waits as
/// [`waiting_at`] does.
pub(crate) async fn asleep_at(
    servers: &[Cli],
    lock: Lock,
) -> JoinHandle<Result<LockGuard, LockError>> {
    let minute = Duration::from_secs(60);
    let seldom = lock.retry_delay(10 * minute, 20 * minute);
    waiting_at(servers, seldom.wait(60 * minute)).await
}

/// Returns the lock of a request that is woken.
pub(crate) async fn woken(waiting: JoinHandle<Result<LockGuard, LockError>>) -> LockGuard {
    let outcome = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    outcome.expect("it is woken").unwrap().unwrap()
}

const ROLE: &str = "REDLOCK_TEST_ROLE";

/// Returns the role of this process, if another test process started it.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

fn program(test: &str, role: &str) -> Command {
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(["--exact", test, "--nocapture"]);
    program.env(ROLE, role);
    program
}

/// Runs a test of this binary in another process, with a role to play, and waits for its end.
pub(crate) fn to_its_end_in_another_process(test: &str, role: &str) -> Output {
    let output = program(test, role).output();
    output.expect("the test binary starts")
}

/// A test of this binary in another process, with a role to play.
pub(crate) struct Other {
    pub(crate) worker: Worker,
    lines: mpsc::Receiver<Option<String>>,
}

impl Other {
    pub(crate) fn start(test: &str, role: &str) -> Self {
        let (sender, lines) = mpsc::channel();
        // An error means that the test of this process has ended.
        let hear = move |line| _ = sender.send(line);
        let worker = Worker::start(&mut program(test, role), hear);
        let worker = worker.expect("the test binary starts");
        Self { worker, lines }
    }

    /// Waits until it prints this word. Returns the rest of the line.
    pub(crate) fn printed(&self, word: &str) -> String {
        let rest = |line: String| Some(line.split_once(word)?.1.trim().to_owned());
        let mut rests = self.lines.iter().flatten().filter_map(rest);
        rests.next().expect("it prints the word")
    }
}
