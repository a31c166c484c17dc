//! Three processes elect a leader, which is killed and stopped.

use std::{
    process::Command,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use redlock_kit::{RedisServers, Worker};

use crate::support::SOON;

#[test]
fn another_process_leads_after_a_leader_that_was_killed_or_stopped() {
    let nodes = RedisServers::spawn(5).unwrap();
    let (sender, lines) = channel();
    let start = |()| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leader"));
        command
            .args(["--ttl", "1s", "--every", "50ms"])
            .env("REDLOCK_TRUST_FRESH_NODES", "1")
            .env("REDLOCK_NODES", nodes.urls().join(","));
        let sender = sender.clone();
        Worker::start(&mut command, move |line| {
            drop(line.map(|it| sender.send(it)));
        })
        .unwrap()
    };
    let mut processes = [(); 3].map(start).into_iter().collect::<Vec<_>>();
    let (first, _) = wait_for("leads", &lines);
    wait_for("report 3", &lines);
    processes.retain(|it| it.id() != first); // kill -9

    // The two tasks of a leader may print in either order.
    let (second, reporters) = wait_for("leads", &lines);
    assert!(second != first && reporters.iter().all(|it| [first, second].contains(it)));
    wait_for("report 3", &lines);
    let stopped = processes.iter().find(|it| it.id() == second).unwrap();
    stopped.freeze();

    let (third, reporters) = wait_for("leads", &lines);
    assert!(third != second && reporters.iter().all(|it| [second, third].contains(it)));
    stopped.thaw();
    let (late, reporters) = wait_for("leads no more", &lines);
    assert_eq!(late, second);
    // It may have been stopped between its look at the lock and its report.
    let others = reporters.iter().filter(|it| **it != third).count();
    assert!(others <= 1, "{second} in {reporters:?}");
    thread::sleep(Duration::from_millis(500)); // several reports
    let asked = Command::new("kill").arg(second.to_string()).status();
    assert!(asked.expect("kill is there").success());
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
