//! Servers that send endless streams. What they send must not pile up in memory.
//!
//! Each case runs in a process of its own. The process measures its memory, and ends before it exhausts the
//! machine.

#![cfg(target_os = "linux")]

use std::{
    fs, process, thread,
    time::{Duration, Instant},
};

use redlock_tokio::{LockOptions, MemoryNode};

use crate::support::{
    MS,
    fake::{Act, Fake, LOCKING},
    role, to_its_end_in_another_process, trusting,
};

/// How much a process may grow: a few buffers, and the memory that the allocator keeps of them.
const MOST_MIB: u64 = 32;

/// How many bytes the servers send, which is more than the process may grow.
const SENT: usize = 64 << 20;

/// How long the servers may take to send them on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn what_nobody_asked_for_does_not_pile_up() {
    for begin in [">2\r\n+invalidate\r\n+", "+", "-ERR "] {
        let endless = format!("{begin}{}\r\n", "x".repeat(1000));
        for moment in ["lock", "ping", "connect"] {
            let (is_small, output) = measure(moment, "", &endless);
            assert!(is_small, "{moment}, {begin:?}: {output}");
        }
    }
}

/// The redis crate keeps the beginning of an incomplete reply in memory, whatever its length (FAULTS.md, known
/// limits). This also shows that growth is noticed. If it fails, the limit is gone, and the case belongs to the tests above.
#[test]
fn known_limit_an_incomplete_reply_piles_up() {
    for (head, endless) in [
        ("+", "xxxxxxxx"),
        ("$9223372036854775807\r\n", "xxxxxxxx"),
        ("*9223372036854775807\r\n", "_\r\n"),
    ] {
        let (is_small, output) = measure("lock", head, endless);
        assert!(!is_small, "the limit is gone: {head:?}: {output}");
    }
}

/// Returns the commands at which the stream begins: those of a lock, of an idle connection, or of a new one.
fn commands_at(moment: &str) -> &'static [&'static str] {
    match moment {
        "lock" => LOCKING,
        "ping" => &["PING"],
        "connect" => &["SCRIPT"],
        other => panic!("{other} is not a moment"),
    }
}

/// Runs a case in another process. Returns whether it stays small, and its output.
fn measure(moment: &str, head: &str, endless: &str) -> (bool, String) {
    let role = format!("{moment}|{head}|{endless}");
    let output = to_its_end_in_another_process("memory::another_process", &role);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("grew by"),
        "{role:?}: it was not measured: {text}"
    );
    (output.status.success(), text)
}

/// The tests above run this one in processes of their own. By itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process() {
    let Some(role) = role() else { return };
    let parts: Vec<_> = role.split('|').collect();
    let [moment, head, endless] = parts[..] else {
        panic!("{role:?} is not a role");
    };
    let acts = [
        Act::Say(head.into()),
        Act::Repeat(Duration::ZERO, endless.repeat(65536 / endless.len()).into()),
    ];
    let before = mebibytes("VmRSS:");
    thread::spawn(move || watch_memory(before));
    let fakes = [0, 1].map(|_| Fake::at(commands_at(moment), &acts));
    let redlock = trusting(fakes.iter().map(Fake::url))
        .allow_unvetted_nodes()
        .custom_nodes([0, 1, 2].map(|_| MemoryNode::new()))
        .options(LockOptions::new().retry_delay(MS(5), MS(20)))
        .build()
        .await
        .unwrap();
    let until = Instant::now() + PATIENCE;
    while fakes.iter().map(Fake::streamed).sum::<usize>() < SENT {
        assert!(
            Instant::now() < until,
            "it is not tested: too little was sent"
        );
        drop(redlock.lock("k").await.expect("three sane nodes"));
        tokio::time::sleep(MS(5)).await;
    }
    let grown = mebibytes("VmHWM:").saturating_sub(before);
    assert!(grown <= MOST_MIB, "grew by {grown} MiB");
    eprintln!("grew by {grown} MiB");
}

fn watch_memory(before: u64) {
    loop {
        let grown = mebibytes("VmHWM:").saturating_sub(before);
        if grown > 4 * MOST_MIB {
            eprintln!("grew by {grown} MiB and more");
            process::exit(1);
        }
        thread::sleep(MS(2));
    }
}

/// Reads a field of this process's status in Linux.
fn mebibytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    let kibibytes: u64 = kibibytes.expect("a size").parse().expect("a number");
    kibibytes / 1024
}
