//! The programs that end by themselves keep their promises, and say what goes wrong without the lock.

use std::{
    collections::BTreeMap,
    process::{Command, Output},
    thread,
};

use redlock_kit::{Cluster, RedisServers, Sentinels};

#[test]
fn quickstart_lets_one_task_in_at_a_time_on_nodes_of_every_kind() {
    let servers = RedisServers::spawn(5).unwrap();
    let group = Sentinels::spawn().unwrap();
    let cluster = Cluster::spawn().unwrap();
    let seeds = cluster.urls().join(",").replace("redis://", "");
    for (nodes, kind) in [
        (None, "5 embedded nodes"),
        (Some(servers.urls().join(",")), "5 Redis nodes"),
        (Some(group.url()), "1 Redis node"),
        (Some(format!("redis+cluster://{seeds}")), "3 Redis nodes"),
    ] {
        let output = output(env!("CARGO_BIN_EXE_quickstart"), &[], nodes.as_deref());
        // No other task prints a line between "holds it" and "is done" of one task.
        let lines = output.lines().filter(|line| line.contains(" ms  task"));
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines.len(), 20, "{output}");
        for pair in lines.chunks(2) {
            let task = |line: &str| line.split("task").nth(1).unwrap()[..3].to_owned();
            assert_eq!(task(pair[0]), task(pair[1]), "{output}");
        }
        assert!(output.matches("<- extended").count() >= 2, "{output}");
        let taken = "the lock is taken: another task of this process holds it";
        for text in [kind, taken, "release: Released", "0 releases abandoned"] {
            assert_says(&output, text);
        }
    }
}

#[test]
fn jobs_lose_no_deposit() {
    let output = output(env!("CARGO_BIN_EXE_jobs"), &[], None);
    assert_says(&output, "no deposit was lost");
}

#[test]
fn a_late_write_is_refused() {
    let output = run(env!("CARGO_BIN_EXE_fenced"), &[], None);
    let [text, errors] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{errors}");
    // The lock of one holder is lost on purpose, and its layer logs the loss.
    assert_says(&errors, "a call lost its lock while it ran");
    let lines: Vec<_> = text.lines().collect();
    let at = |line: &str| lines.iter().position(|it| *it == line).expect(&text);
    let written = at("Bob: writes 150");
    let refused = at("Ada: the write of 110 is refused");
    assert!(
        written < refused && refused < at("Ada: writes 160"),
        "{text}"
    );
    assert_says(&text, "the account has 160\n");
}

#[test]
fn two_exports_of_a_tenant_run_at_once() {
    let output = output(env!("CARGO_BIN_EXE_exports"), &[], None);
    for tenant in ["acme", "globex"] {
        for said in [
            "exported with permit 0",
            "exported with permit 1",
            "at most 2 exports ran at once",
        ] {
            assert_says(&output, &format!("{tenant}: {said}"));
        }
    }
}

#[test]
fn readers_share_a_catalogue_and_see_it_whole() {
    let output = output(env!("CARGO_BIN_EXE_catalogue"), &[], None);
    assert_says(&output, "rebuilt as edition 3\n");
    let (_, end) = output.split_once(" reads, at most ").unwrap();
    let (most, torn) = end.split_once(" at once, ").unwrap();
    assert!(most.parse::<usize>().unwrap() > 1, "{output}");
    assert_eq!(torn, "0 torn\n", "{output}");
}

#[test]
fn without_the_lock_programs_fail_and_say_why() {
    for (program, arguments, reason) in [
        (
            env!("CARGO_BIN_EXE_fenced"),
            &["--no-fence"][..],
            "100 + 10 + 50 became 110",
        ),
        (
            env!("CARGO_BIN_EXE_exports"),
            &["--no-limit"],
            "6 exports of acme ran at once",
        ),
        (
            env!("CARGO_BIN_EXE_catalogue"),
            &["--no-lock"],
            "reads were torn",
        ),
    ] {
        let output = run(program, arguments, None);
        assert!(!output.status.success(), "no failure: {reason}");
        assert_says(&String::from_utf8_lossy(&output.stderr), reason);
    }
    // By chance, as much money may appear as is lost.
    let loses = |seed: &str| {
        let arguments = ["--no-lock", "--tellers", "64", "--seed", seed];
        let output = run(env!("CARGO_BIN_EXE_transfer"), &arguments, None);
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("800 became")
    };
    assert!(["1", "2", "3", "4", "5"].into_iter().any(loses));
}

/// The program checks the sum, too.
#[test]
fn transfers_in_processes_that_share_a_database_keep_the_sum() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("accounts.db");
    let arguments = ["--database", file.to_str().unwrap(), "--accounts", "3"];
    for output in in_three_processes(env!("CARGO_BIN_EXE_transfer"), &arguments) {
        let sums = output.matches("3 accounts have 300\n").count();
        assert_eq!(sums, 2, "{output}");
    }
}

#[test]
fn cron_in_three_processes_runs_once_a_slot() {
    let arguments = ["--every", "1s", "--runs", "3", "--runners", "2"];
    let outputs = in_three_processes(env!("CARGO_BIN_EXE_cron"), &arguments);
    let mut runs = BTreeMap::new();
    for line in outputs.iter().flat_map(|output| output.lines()) {
        if let Some(slot_and_outcome) = line.strip_prefix("slot ")
            && let Some((slot, outcome)) = slot_and_outcome.split_once(", ")
        {
            *runs.entry(slot).or_insert(0) += usize::from(outcome.ends_with(": runs"));
        }
    }
    assert!(runs.len() >= 3, "{outputs:?}");
    assert!(runs.values().all(|&runs| runs == 1), "{outputs:?}");
    assert_says(&outputs.concat(), "skips, another runner has it");
}

/// Returns the outputs of three processes over the same five servers.
fn in_three_processes(program: &str, arguments: &[&str]) -> [String; 3] {
    let servers = RedisServers::spawn(5).unwrap();
    let nodes = servers.urls().join(",");
    thread::scope(|scope| {
        let process = || scope.spawn(|| output(program, arguments, Some(&nodes)));
        [(); 3].map(|()| process()).map(|it| it.join().unwrap())
    })
}

/// Runs a program over these nodes, or over embedded ones.
fn run(program: &str, arguments: &[&str], nodes: Option<&str>) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("REDLOCK_NODES");
    if let Some(urls) = nodes {
        command.env("REDLOCK_TRUST_FRESH_NODES", "1");
        command.env("REDLOCK_NODES", urls);
    }
    command.output().expect("the program starts")
}

/// Returns the output of a program, which must succeed and log nothing.
fn output(program: &str, arguments: &[&str], nodes: Option<&str>) -> String {
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

fn assert_says(output: &str, text: &str) {
    assert!(output.contains(text), "no `{text}` in {output}");
}
