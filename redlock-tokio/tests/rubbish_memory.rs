//! Servers that talk without end, or of endless things: what they say must not pile up.
//!
//! Each case runs in a process of its own, which measures itself, and which ends before it takes
//! the machine's memory.

#![cfg(target_os = "linux")]

mod support;

use std::{
    fs, process, thread,
    time::{Duration, Instant},
};

use redlock_tokio::{LockOptions, MemoryNode};
use support::{
    MS,
    fake::{Act, Fake, LOCKING},
    role, to_its_end_in_another_process, trusting,
};

/// By how much a process may grow whose nodes talk without end: a few buffers, and what the
/// allocator keeps of them.
const MOST_MIB: u64 = 32;

/// How much is said to it: more than it may grow.
const SAID: usize = 64 << 20;

/// How long it may take to say it, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn pushes_do_not_pile_up() {
    stays_small(
        "",
        &format!(">2\r\n+invalidate\r\n+{}\r\n", "x".repeat(1000)),
    );
}

#[test]
fn answers_that_nobody_asked_for_do_not_pile_up() {
    stays_small("", &format!("+{}\r\n", "x".repeat(1000)));
}

#[test]
fn errors_do_not_pile_up() {
    stays_small("", &format!("-ERR {}\r\n", "x".repeat(1000)));
}

/// The redis crate keeps what it has of a reply, however long that claims to be (FAULTS.md, known limits).
/// Should one of these fail, the limit is gone, and it belongs to the tests above. Until then they show
/// that growth is noticed.
#[test]
fn known_limit_a_line_without_end_piles_up() {
    piles_up("+", "xxxxxxxx");
}

#[test]
fn known_limit_a_string_without_end_piles_up() {
    piles_up("$9223372036854775807\r\n", "xxxxxxxx");
}

#[test]
fn known_limit_an_array_without_end_piles_up() {
    piles_up("*9223372036854775807\r\n", "_\r\n");
}

/// Where in a conversation the stream begins: at the first lock, on an idle connection, on a new
/// one.
fn commands_at(moment: &str) -> &'static [&'static str] {
    match moment {
        "lock" => LOCKING,
        "ping" => &["PING"],
        "connect" => &["SCRIPT"],
        other => panic!("{other} is no moment"),
    }
}

fn stays_small(head: &str, endless: &str) {
    for moment in ["lock", "ping", "connect"] {
        let (is_small, said) = measure(moment, head, endless);
        assert!(is_small, "{moment}, {head:?}, {endless:?}: {said}");
    }
}

fn piles_up(head: &str, endless: &str) {
    let (is_small, said) = measure("lock", head, endless);
    assert!(
        !is_small,
        "the limit is gone: {head:?}, {endless:?}: {said}"
    );
}

/// Returns whether a process stays small, and what it said.
fn measure(moment: &str, head: &str, endless: &str) -> (bool, String) {
    let role = format!("{moment}|{head}|{endless}");
    let output = to_its_end_in_another_process("another_process", &role);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("grew by"),
        "{role:?}: it was not measured: {said}"
    );
    (output.status.success(), said)
}

/// What the tests above run in processes of their own. By itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process() {
    let Some(role) = role() else { return };
    let parts: Vec<_> = role.split('|').collect();
    let [moment, head, endless] = parts[..] else {
        panic!("{role:?} is no role");
    };
    let acts = [
        Act::Say(head.into()),
        Act::Repeat(endless.repeat(65536 / endless.len()).into()),
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
    while fakes.iter().map(Fake::streamed).sum::<usize>() < SAID {
        assert!(
            Instant::now() < until,
            "it is not tested: too little was said"
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

/// Reads a field of what Linux knows of this process.
fn mebibytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    let kibibytes: u64 = kibibytes.expect("a size").parse().expect("a number");
    kibibytes / 1024
}
