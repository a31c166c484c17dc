//! For scripts: exit codes, the environment, signals, JSON.

use std::{
    cell::RefCell, collections::BTreeSet, fs, os::unix::process::ExitStatusExt, process::Stdio,
};

use serde_json::Value;

use crate::process::{Bed, Pid, code, program, text, wait_for};

const PAGE: &str = include_str!("../../CLI.md");

/// Returns the codes in the table of the page.
fn explained() -> BTreeSet<String> {
    let table = PAGE.split("## Exit codes").nth(1).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let codes = rows.filter_map(|row| row.split(" | ").next());
    let codes = codes.filter(|code| *code != "code");
    codes.map(Into::into).collect()
}

#[test]
fn the_help_names_each_exit_code_of_the_page() {
    let help = text(&program(["--help"]).output().unwrap().stdout).replace(',', " ");
    let help: BTreeSet<_> = help.split_whitespace().collect();
    let unknown = explained()
        .into_iter()
        .find(|it| it.parse::<u8>().is_ok() && !help.contains(&**it));
    assert_eq!(unknown, None);
}

#[test]
fn each_exit_code_of_the_page_is_seen_and_no_other() {
    let bed = Bed::new();
    let seen = RefCell::new(BTreeSet::from(["76".to_owned()]));
    let expect = |name: &str, mut command: std::process::Command| {
        let output = command.output().unwrap();
        let seen_code = code(&output).to_string();
        assert_eq!(seen_code, name, "{}", text(&output.stderr));
        seen.borrow_mut().insert(name.to_owned());
    };
    expect("0", bed.run("", "true"));
    expect("3", bed.run("", "exit 3"));
    expect("143", bed.run("", "kill -TERM $$"));
    expect("64", bed.run("--wait never", "true"));
    expect("64", bed.run("--grace 6s", "true"));
    expect("64", bed.redlock("watch k --every 0"));
    expect("64", bed.redlock("elect k --shared -- true"));
    expect("64", program(["run", "k", "--", "true"]));
    expect("64", bed.run("--max-ttl 1s --ttl 2s", "true"));
    expect("0", bed.run("--max-ttl 1s", "true"));
    expect("64", bed.redlock("run k j --shared -- true"));
    expect("64", bed.redlock("run -- true"));
    expect("64", bed.redlock("list k"));
    expect("0", bed.redlock("list"));
    expect("0", bed.redlock("help run"));
    expect("126", bed.redlock("run k -- /etc/passwd"));
    expect("127", bed.redlock("run k -- /no/such/command"));
    // As shells and `env` start it: without a line that names a shell.
    expect(
        "3",
        bed.run("", "echo exit 3 > plain; chmod +x plain; exit 3"),
    );
    let plain = bed.path("plain").display().to_string();
    expect("3", bed.redlock(&format!("run k -- {plain}")));
    let mut holder = bed.holder("");
    expect("75", bed.run("-n", "true"));
    expect("75", bed.run("--wait 50ms", "true"));
    expect("9", bed.run("-n -E 9", "true"));
    expect("0", bed.redlock("unlock k --yes"));
    let mut full = program(["man"]);
    full.stdout(fs::File::options().write(true).open("/dev/full").unwrap());
    expect("70", full);
    bed.command("SET word theirs");
    expect("65", bed.redlock("unlock word --yes"));
    assert_eq!(holder.wait().unwrap().code(), Some(76));
    bed.servers.get(0).kill();
    bed.servers.get(1).kill();
    expect("69", bed.run("-n", "true"));
    expect("69", bed.redlock("list"));
    let mut seen = seen.into_inner();
    // The codes of commands are theirs.
    let own = ["3", "9"].map(String::from);
    seen.retain(|it| !own.contains(it));
    if seen.remove("143") {
        seen.insert("128 + n".into());
    }
    assert_eq!(seen, explained());
}

#[test]
fn the_command_knows_its_lock_and_its_fence_grows() {
    let bed = Bed::new();
    let script = "echo $REDLOCK_KEY $REDLOCK_TOKEN ${REDLOCK_FENCE-none}";
    let run = |options: &str| {
        let output = bed.run(options, script).output().unwrap();
        assert_eq!(code(&output), 0);
        let line = text(&output.stdout);
        let words: Vec<_> = line.split_whitespace().map(String::from).collect();
        <[String; 3]>::try_from(words).unwrap()
    };
    let [key, token, fence] = run("--prefix app:");
    assert_eq!((&*key, token.len(), &*fence), ("app:k", 40, "none"));
    let [_, first, low] = run("--fenced");
    let [_, second, high] = run("--fenced");
    assert_ne!(first, second);
    assert!(low.parse::<u64>().unwrap() < high.parse::<u64>().unwrap());
}

#[test]
fn signals_are_passed_on_and_nothing_is_left() {
    let bed = Bed::new();
    let script = "trap 'echo usr1 > usr1' USR1; trap 'exit 41' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let mut program = bed.run("", script).spawn().unwrap();
    let command = bed.pid("pid");
    let holder = Pid::of(&program);
    let guardian = holder.guardian();
    assert_eq!(holder.children(), [guardian]);
    assert_eq!(guardian.children(), [command]);
    holder.signal("USR1");
    bed.trace("usr1");
    holder.signal("TERM");
    assert_eq!(program.wait().unwrap().code(), Some(41));
    assert!([command, guardian].iter().all(|it| it.state().is_none()));
    // The lock is free at once.
    assert_eq!(code(&bed.run("-n", "true").output().unwrap()), 0);
}

#[test]
fn a_signal_ends_the_wait_without_the_command() {
    let bed = Bed::new();
    let mut holder = bed.holder("");
    let mut waiting = bed.run("", "echo > never").spawn().unwrap();
    // It may be connecting still, or waiting.
    std::thread::sleep(std::time::Duration::from_millis(300));
    Pid::of(&waiting).signal("INT");
    // So that a script ends too.
    assert_eq!(waiting.wait().unwrap().signal(), Some(2));
    assert!(!bed.path("never").exists());
    Pid::of(&holder).signal("TERM");
    assert_eq!(holder.wait().unwrap().code(), Some(143));
}

#[test]
fn the_nodes_come_from_options_and_variables() {
    let bed = Bed::new();
    let list = bed.servers.urls().join(",");
    let from = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = program(arguments.iter().chain(&["nodes", "--json"]));
        let output = command.envs(variables.iter().copied()).output().unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        text(&output.stdout).lines().count()
    };
    // An empty variable is none, as where a template has no value.
    let empty = ["REDLOCK_CONFIG", "REDLOCK_TLS_CA", "REDLOCK_CLIENT_NAME"].map(|it| (it, ""));
    assert_eq!(from(&["--nodes", &list], &empty), 3);
    assert_eq!(from(&[], &[("REDLOCK_NODES", &list)]), 3);
}

#[test]
fn scripts_get_json() {
    let bed = Bed::new();
    let json = |arguments: &str| -> Vec<Value> {
        let mut command = bed.redlock(arguments);
        let command = command.arg("--json").env("REDLOCK_CLIENT_NAME", "web-3");
        let output = command.output().unwrap();
        let lines = text(&[output.stdout, output.stderr].concat());
        let values = lines.lines().map(serde_json::from_str);
        values.map(Result::unwrap).collect()
    };
    let nodes = json("nodes");
    assert_eq!(nodes.len(), 3);
    for node in &nodes {
        assert_eq!(node["state"], "voting");
        assert!(node["version"].as_str().unwrap().contains('.'));
        assert!(node["round_trip_seconds"].as_f64().unwrap() > 0.0);
    }
    let mut take = bed.run("--client-name web-3 --keep-for 5s", "echo $REDLOCK_TOKEN");
    let token = text(&take.output().unwrap().stdout).trim().to_owned();
    let inspection = &json("inspect k")[0];
    assert_eq!(inspection["state"], "held");
    assert_eq!(inspection["holders"][0]["client_name"], "web-3");
    assert_eq!(inspection["holders"][0]["token"], token);
    assert_eq!(inspection["nodes"].as_array().unwrap().len(), 3);
    let refused = bed.output("--json run -n k -- true");
    let refused: Value = serde_json::from_slice(&refused.stderr).unwrap();
    assert_eq!(refused["error"], "contended");
    let refused = json("unlock k --yes --holder other");
    assert_eq!(refused[0]["holders"][0]["client_name"], "web-3");
    assert_eq!(refused[1]["error"], "contended");
    assert_eq!(json("inspect k")[0]["state"], "held");
    let unlocked = json("unlock k --yes --holder web-3");
    let nodes = unlocked[1]["unlocked"].as_array().unwrap();
    assert_eq!(nodes.iter().filter(|it| it["deleted"] == 1).count(), 3);
    assert_eq!(json("inspect k")[0]["state"], "free");
}

#[test]
fn a_lock_that_looks_free_may_have_a_prefix() {
    let bed = Bed::new();
    let hint = |arguments: &str| text(&bed.redlock(arguments).output().unwrap().stderr);
    let take = "--prefix app: run --keep-for 5s k -- true";
    assert_eq!(bed.code_of(take), 0);
    assert!(hint("inspect k").contains("--prefix"));
    assert!(hint("unlock k --yes").contains("--prefix"));
    assert_eq!(hint("inspect app:k"), "");
    assert_eq!(hint("--prefix none: list"), "redlock: nothing is held\n");
    assert_eq!(hint("--prefix app: list"), "");
    assert_eq!(hint("--prefix none: list --json"), "");
    assert_eq!(hint("--prefix app: inspect other"), "");
    assert!(hint("--prefix app: inspect app:k").contains("without it"));
}

#[test]
fn a_holder_of_another_program_is_named_as_it_is_shown() {
    let bed = Bed::new();
    bed.command("SET k theirs PX 60000");
    assert_eq!(bed.code_of("unlock k --yes --holder theirs"), 0);
    assert_eq!(code(&bed.run("-n", "true").output().unwrap()), 0);
}

#[test]
fn a_watch_writes_a_line_for_each_holder() {
    let bed = Bed::new();
    let output = fs::File::create(bed.path("lines")).unwrap();
    let mut watch = bed.redlock("watch k --every 20ms --json");
    let mut watch = watch.stdout(Stdio::from(output)).spawn().unwrap();
    let states = || -> Vec<String> {
        let lines = fs::read_to_string(bed.path("lines")).unwrap();
        let values = lines.lines().filter_map(|it| serde_json::from_str(it).ok());
        let state = |it: Value| it["state"].as_str().unwrap().to_owned();
        values.map(state).collect()
    };
    let wait_for = |expected: &[&str]| {
        wait_for("the next line", || {
            let states = states();
            // While the nodes change one after the other, they may differ.
            let states: Vec<_> = states.iter().filter(|it| *it != "split").collect();
            (states == expected).then_some(())
        });
    };
    wait_for(&["free"]);
    let mut holder = bed.run("", "exec sleep 60").spawn().unwrap();
    wait_for(&["free", "held"]);
    Pid::of(&holder).signal("TERM");
    holder.wait().unwrap();
    wait_for(&["free", "held", "free"]);
    watch.kill().unwrap();
    watch.wait().unwrap();
}
