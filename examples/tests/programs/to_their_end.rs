//! Runs the example programs as a user would.

use std::{
    collections::BTreeMap,
    process::{Command, Output},
    thread,
};

use redlock_kit::{Cluster, RedisServers, Sentinels};

/// The URLs of the nodes of a program. Without any, the nodes are embedded.
type Nodes = Option<String>;

fn masters(servers: &RedisServers) -> Nodes {
    Some(servers.urls().join(","))
}

fn run(program: &str, arguments: &[&str], nodes: Nodes) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("REDLOCK_NODES");
    if let Some(urls) = nodes {
        command.env("REDLOCK_TRUST_FRESH_NODES", "1");
        command.env("REDLOCK_NODES", urls);
    }
    command.output().expect("the program starts")
}

/// Runs a program over embedded nodes that must fail for this reason, and returns its output.
fn fails(program: &str, arguments: &[&str], reason: &str) -> String {
    let output = run(program, arguments, None);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "no failure: {reason}");
    assert!(errors.contains(reason), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn assert_says(output: &str, text: &str) {
    assert!(output.contains(text), "no `{text}` in {output}");
}

/// Returns the output of a program, which must succeed and log nothing.
fn output(program: &str, arguments: &[&str], nodes: Nodes) -> String {
    let output = run(program, arguments, nodes);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // A slow disk or processor is not a fault of the program, and neither is the choice of the nodes.
    let harmless = [
        "sqlx::query: slow statement",
        "sqlx::pool::acquire: acquired connection, but",
        "one sentinel group has one vote",
        "the node has no vote until a majority of its sentinels",
    ];
    let is_fault = |line: &&str| !harmless.iter().any(|it| line.contains(it));
    assert_eq!(errors.lines().find(is_fault), None);
    String::from_utf8(output.stdout).unwrap()
}

fn quickstart(nodes: Nodes) -> String {
    let output = output(env!("CARGO_BIN_EXE_quickstart"), &[], nodes);
    for task in 1..=10 {
        assert_says(&output, &format!("task {task:>2} holds it"));
    }
    // No other task prints a line between "holds it" and "is done" of one task.
    let lines = output.lines().filter(|line| line.contains(" ms  task"));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 20);
    for pair in lines.chunks(2) {
        let task = |line: &str| line.split("task").nth(1).unwrap()[..3].to_owned();
        assert_eq!(task(pair[0]), task(pair[1]), "{output}");
    }
    assert!(output.matches("<- extended").count() >= 2, "{output}");
    let taken = "the lock is taken: another task of this process holds it";
    for text in [taken, "release: Released", "0 releases abandoned"] {
        assert_says(&output, text);
    }
    output
}

#[test]
fn quickstart_on_embedded_nodes() {
    assert!(quickstart(None).contains("5 embedded nodes"));
}

#[test]
fn quickstart_on_real_nodes() {
    let servers = RedisServers::spawn(5).unwrap();
    assert!(quickstart(masters(&servers)).contains("5 Redis nodes"));
}

#[test]
fn quickstart_on_a_sentinel_group() {
    let group = Sentinels::spawn().unwrap();
    assert!(quickstart(Some(group.url())).contains("1 Redis node"));
}

#[test]
fn quickstart_on_a_cluster() {
    let cluster = Cluster::spawn().unwrap();
    let seeds = cluster.urls().join(",").replace("redis://", "");
    let nodes = Some(format!("redis+cluster://{seeds}"));
    assert!(quickstart(nodes).contains("3 Redis nodes"));
}

fn jobs(nodes: Nodes) {
    let output = output(env!("CARGO_BIN_EXE_jobs"), &[], nodes);
    assert_says(&output, "no deposit was lost");
}

#[test]
fn jobs_on_embedded_nodes() {
    jobs(None);
}

#[test]
fn jobs_on_real_nodes() {
    jobs(masters(&RedisServers::spawn(5).unwrap()));
}

/// Asserts that the sum is the same after the transfers. The program checks the sum, too.
fn transfer(nodes: Nodes) {
    let output = output(env!("CARGO_BIN_EXE_transfer"), &[], nodes);
    assert_says(&output, "160 transfers took");
    let sums = output.matches("8 accounts have 800\n").count();
    assert_eq!(sums, 2, "{output}");
}

#[test]
fn transfer_on_embedded_nodes() {
    transfer(None);
}

#[test]
fn transfer_on_real_nodes() {
    transfer(masters(&RedisServers::spawn(5).unwrap()));
}

#[test]
fn transfer_in_processes_that_share_a_database() {
    let nodes = RedisServers::spawn(5).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("accounts.db");
    let arguments = ["--database", file.to_str().unwrap(), "--accounts", "3"];
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let output = output(env!("CARGO_BIN_EXE_transfer"), &arguments, masters(&nodes));
                let sums = output.matches("3 accounts have 300\n").count();
                assert_eq!(sums, 2, "{output}");
            });
        }
    });
}

#[test]
fn transfers_without_locks_lose_money() {
    // By chance, as much may appear as is lost.
    let loses = |seed: &str| {
        let arguments = ["--no-lock", "--tellers", "64", "--seed", seed];
        let output = run(env!("CARGO_BIN_EXE_transfer"), &arguments, None);
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("800 became")
    };
    assert!(["1", "2", "3", "4", "5"].into_iter().any(loses));
}

/// The lock of one holder is lost on purpose, and its layer logs the loss.
fn fenced(nodes: Nodes) {
    let output = run(env!("CARGO_BIN_EXE_fenced"), &[], nodes);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert_says(&errors, "a call lost its lock while it ran");
    let output = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = output.lines().collect();
    let at = |line: &str| lines.iter().position(|it| *it == line);
    let written = at("Bob: writes 150").expect(&output);
    let refused = at("Ada: the write of 110 is refused").expect(&output);
    let repeated = at("Ada: writes 160").expect(&output);
    assert!(written < refused && refused < repeated, "{output}");
    assert_says(&output, "the account has 160\n");
}

#[test]
fn a_late_write_is_refused_on_embedded_nodes() {
    fenced(None);
}

#[test]
fn a_late_write_is_refused_on_real_nodes() {
    fenced(masters(&RedisServers::spawn(5).unwrap()));
}

#[test]
fn a_late_write_without_a_fence_wins() {
    let reason = "100 + 10 + 50 became 110";
    let output = fails(env!("CARGO_BIN_EXE_fenced"), &["--no-fence"], reason);
    assert_says(&output, "Ada: writes 110\n");
}

fn exports(nodes: Nodes) {
    let output = output(env!("CARGO_BIN_EXE_exports"), &[], nodes);
    for tenant in ["acme", "globex"] {
        for permit in 0..2 {
            assert_says(&output, &format!("{tenant}: exported with permit {permit}"));
        }
        assert_says(&output, &format!("{tenant}: at most 2 exports ran at once"));
    }
}

#[test]
fn two_exports_of_a_tenant_run_at_once_on_embedded_nodes() {
    exports(None);
}

#[test]
fn two_exports_of_a_tenant_run_at_once_on_real_nodes() {
    exports(masters(&RedisServers::spawn(5).unwrap()));
}

#[test]
fn without_the_layer_all_exports_run_at_once() {
    let arguments = ["--no-limit", "--requests", "3"];
    let reason = "3 exports of acme ran at once";
    fails(env!("CARGO_BIN_EXE_exports"), &arguments, reason);
}

fn catalogue(nodes: Nodes) {
    let output = output(env!("CARGO_BIN_EXE_catalogue"), &[], nodes);
    for edition in 1..=3 {
        assert_says(&output, &format!("rebuilt as edition {edition}\n"));
    }
    let (_, end) = output.split_once(" reads, at most ").unwrap();
    let (most, torn) = end.split_once(" at once, ").unwrap();
    assert!(most.parse::<usize>().unwrap() > 1, "{output}");
    assert_eq!(torn, "0 torn\n", "{output}");
}

#[test]
fn readers_share_a_catalogue_and_see_it_whole_on_embedded_nodes() {
    catalogue(None);
}

#[test]
fn readers_share_a_catalogue_and_see_it_whole_on_real_nodes() {
    catalogue(masters(&RedisServers::spawn(5).unwrap()));
}

#[test]
fn without_the_layer_readers_see_a_catalogue_half_rebuilt() {
    let reason = "reads were torn";
    fails(env!("CARGO_BIN_EXE_catalogue"), &["--no-lock"], reason);
}

const EVERY_SECOND: [&str; 4] = ["--every", "1s", "--runs", "3"];

/// Returns how often the job was run in each slot in which a runner took part.
fn runs_by_slot(outputs: &[String]) -> BTreeMap<String, usize> {
    let mut slots = BTreeMap::new();
    for line in outputs.iter().flat_map(|output| output.lines()) {
        if let Some(slot_and_outcome) = line.strip_prefix("slot ")
            && let Some((slot, outcome)) = slot_and_outcome.split_once(", ")
        {
            let has_run = outcome.ends_with(": runs");
            *slots.entry(slot.to_owned()).or_default() += usize::from(has_run);
        }
    }
    slots
}

#[test]
fn cron_on_embedded_nodes_runs_once_a_slot() {
    let outputs = [output(env!("CARGO_BIN_EXE_cron"), &EVERY_SECOND, None)];
    let skipped = outputs[0].matches("skips, another runner has it").count();
    let slots = runs_by_slot(&outputs);
    assert!(slots.len() >= 3, "{outputs:?}");
    assert!(slots.values().all(|&runs| runs == 1), "{outputs:?}");
    // A late runner may have taken part in one slot alone, before the others started.
    assert!(skipped >= 4, "{outputs:?}");
}

#[test]
fn cron_in_three_processes_runs_once_a_slot() {
    let servers = RedisServers::spawn(5).unwrap();
    let outputs = thread::scope(|scope| {
        let hosts = [(); 3].map(|()| {
            let arguments = [&EVERY_SECOND[..], &["--runners", "1"]].concat();
            let servers = &servers;
            scope.spawn(move || output(env!("CARGO_BIN_EXE_cron"), &arguments, masters(servers)))
        });
        hosts.map(|host| host.join().unwrap())
    });
    let slots = runs_by_slot(&outputs);
    assert!(slots.len() >= 3, "{outputs:?}");
    assert!(slots.values().all(|&runs| runs == 1), "{outputs:?}");
}

#[test]
fn bad_nodes_are_named_and_secrets_are_not() {
    for (nodes, complaint) in [
        ("redis://:hunter2@host,nonsense", "node 2"),
        ("", "no nodes given"),
        ("redis://:hunter2@a,redis://:hunter2@a", "both a:6379"),
    ] {
        let output = run(env!("CARGO_BIN_EXE_quickstart"), &[], Some(nodes.into()));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(errors.contains(complaint), "{errors}");
        assert!(!errors.contains("hunter2"), "{errors}");
    }
}
