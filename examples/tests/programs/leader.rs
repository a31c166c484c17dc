//! Three processes elect a leader, which is killed and stopped.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use redlock_kit::RedisServers;

use crate::support::SOON;

#[test]
fn another_process_leads_after_a_leader_that_was_killed_or_stopped() {
    let nodes = RedisServers::spawn(5).unwrap();
    let (sender, lines) = channel();
    let start = || Process::start(&nodes, sender.clone());
    let mut processes = [start(), start(), start()].into_iter().collect::<Vec<_>>();
    let (first, _) = wait_for("leads", &lines);
    wait_for("report 3", &lines);
    processes.retain(|it| it.0.id() != first); // kill -9

    // The two tasks of a leader may print in either order.
    let (second, reporters) = wait_for("leads", &lines);
    assert!(second != first && reporters.iter().all(|it| [first, second].contains(it)));
    wait_for("report 3", &lines);
    let stopped = processes.iter().find(|it| it.0.id() == second).unwrap();
    stopped.signal("-STOP");

    let (third, reporters) = wait_for("leads", &lines);
    assert!(third != second && reporters.iter().all(|it| [second, third].contains(it)));
    stopped.signal("-CONT");
    let (late, reporters) = wait_for("leads no more", &lines);
    assert_eq!(late, second);
    let is_third = reporters.iter().all(|it| *it == third);
    assert!(is_third, "{second} in {reporters:?}");
    thread::sleep(Duration::from_millis(500)); // several reports
    stopped.signal("-TERM");
    let (ended, reporters) = wait_for("ends", &lines);
    assert!(ended == second && reporters.iter().all(|it| *it == third));
}

#[test]
fn a_leader_resigns_after_its_last_report() {
    let mut leader = Command::new(env!("CARGO_BIN_EXE_leader"));
    let leader = leader.args(["--every", "10ms", "--reports", "3"]);
    let output = leader.env_remove("REDLOCK_NODES").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for wanted in [": leads\n", ": report 3\n", ": ends\n"] {
        assert!(text.contains(wanted), "{text}");
    }
}

/// A candidate, killed when dropped.
struct Process(Child);

impl Process {
    /// Starts one, which sends its lines, each with its id in front.
    fn start(nodes: &RedisServers, lines: Sender<String>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leader"));
        command
            .args(["--ttl", "1s", "--every", "50ms"])
            .env("REDLOCK_TRUST_FRESH_NODES", "1")
            .env("REDLOCK_NODES", nodes.urls().join(","));
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        thread::spawn(move || {
            let lines_of_process = output.lines().map_while(Result::ok);
            lines_of_process.for_each(|line| drop(lines.send(line)));
        });
        Self(process)
    }

    fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status();
        assert!(sent.expect("kill is there").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a line of this kind. Returns the id of its process, and the ids of those that sent reports before.
fn wait_for(text: &str, lines: &Receiver<String>) -> (u32, Vec<u32>) {
    let (deadline, mut reporters) = (Instant::now() + SOON, Vec::new());
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left);
        let line = line.unwrap_or_else(|_| panic!("no line `{text}` within {SOON:?}"));
        let Some((id, said)) = line.split_once(": ") else {
            continue;
        };
        let id = id.parse().expect("an id");
        if said == text {
            return (id, reporters);
        } else if said.starts_with("report") {
            reporters.push(id);
        }
    }
}
