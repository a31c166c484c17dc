//! Helpers of the tests of the example servers.

#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod box_office;
pub(crate) mod live;

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

use redlock_kit::RedisServers;
use tokio::time::{Instant, sleep};

/// How long a step may take that should be fast.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A server process, killed when dropped, or when this process dies.
pub(crate) struct Server {
    watchdog: Child,
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
    pub(crate) url: String,
}

impl Server {
    /// Starts one of the examples on a free port, over these lock nodes or embedded ones.
    pub(crate) fn start(program: &str, arguments: &[&str], nodes: Option<&RedisServers>) -> Self {
        let mut command = Command::new(program);
        command.args(["--port", "0"]).args(arguments);
        command.env("LISTEN", "127.0.0.1:0"); // for `service`, which has no arguments
        match nodes {
            Some(nodes) => command
                .env("REDLOCK_TRUST_FRESH_NODES", "1")
                .env("REDLOCK_NODES", nodes.urls().join(",")),
            None => command.env_remove("REDLOCK_NODES"),
        };
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let output = process.stdout.take().expect("piped");
        let mut output = BufReader::new(output).lines();
        let url = output
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
            .expect("it says where it listens");
        let watchdog = Command::new("sh")
            .args(["-c", r#"read -r _; kill -KILL "$1""#, "watchdog"])
            .arg(process.id().to_string())
            .stdin(Stdio::piped()) // which ends with this process
            .spawn()
            .expect("a shell");
        Self {
            watchdog,
            process,
            output,
            url,
        }
    }

    /// Reads the output up to this line.
    pub(crate) fn wait_for(&mut self, line: &str) {
        let found = self.output.by_ref().map_while(Result::ok);
        assert!(found.into_iter().any(|it| it == line), "no line `{line}`");
    }

    /// Sends SIGTERM.
    pub(crate) fn ask_to_stop(&self) {
        let kill = format!("kill -TERM {}", self.process.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.expect("a shell").success());
    }

    /// Sends SIGTERM, and returns the exit status and the rest of the output.
    pub(crate) fn stop(mut self) -> (ExitStatus, Vec<String>) {
        self.ask_to_stop();
        let lines = self.output.by_ref().map_while(Result::ok).collect();
        (self.process.wait().expect("it ends"), lines)
    }

    /// Sends SIGTERM to a server that must end well, and returns the rest of the output.
    pub(crate) fn end(self) -> Vec<String> {
        let (status, lines) = self.stop();
        assert!(status.success(), "{status}: {lines:?}");
        lines
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors mean that the process has ended. The watchdog is killed first, since it must not outlive the process,
        // whose id another process may get.
        for process in [&mut self.watchdog, &mut self.process] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Repeats a check until it returns a value. Panics with the name of the check after a while.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
