//! What is held now, and by which names it is found.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Output, Stdio},
};

use redlock_kit::Sentinels;
use serde_json::Value;

use crate::process::{Bed, code, program, text, wait_for};

/// Returns the locks of a list by their keys: the state, and on how many nodes.
fn listed(output: &Output) -> BTreeMap<String, (String, u64)> {
    assert_eq!(code(output), 0, "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let values = shown
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).unwrap());
    let mut listed = BTreeMap::new();
    for value in values {
        let word = |name: &str| value[name].as_str().unwrap().to_owned();
        let lock = (word("state"), value["on_nodes"].as_u64().unwrap());
        let before = listed.insert(word("key"), lock);
        assert_eq!(before, None, "twice: {value}");
    }
    listed
}

#[test]
fn each_lock_is_listed_once_with_its_holder_and_the_nodes_that_have_it() {
    let bed = Bed::new();
    let take = |options: &str, arguments: &str| {
        let taking = format!("--client-name web-3 --prefix a*[x: {options} run {arguments}");
        let output = bed.output(&format!("{taking} -- true"));
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    };
    take("", "--keep-for 9s plain");
    take("", "--keep-for 9s both:slot:x");
    take("", "--keep-for 9s --writer written");
    let keep_permit = "--keep-for 9s --permits 2 jobs";
    take("", keep_permit);
    take("", keep_permit);
    let mut reader = bed.redlock("--prefix a*[x: run --shared read -- sh -c");
    let reader = reader
        .arg("echo > reads; exec sleep 60")
        .current_dir(bed.path("."));
    let mut reader = reader.spawn().unwrap();
    bed.trace("reads");
    // Others: of another prefix, of another type, without an end, and what a fence leaves behind.
    bed.command("SET axx:other theirs PX 60000");
    bed.command("RPUSH a*[x:list a");
    bed.command("SET a*[x:word theirs");
    bed.servers.get(2).kill();
    take("", "--keep-for 9s two");
    bed.servers.get(2).restart().unwrap();
    // A minority has it, so it is free.
    bed.command_at(0, "SET a*[x:one theirs PX 60000");
    let output = bed.output("--prefix a*[x: list --json");
    let held = |state: &str, nodes| (state.to_owned(), nodes);
    let mut expected: BTreeMap<_, _> = ["plain", "both:slot:x", "written", "two"]
        .map(|key| (format!("a*[x:{key}"), held("held", 2)))
        .into();
    expected.insert("a*[x:jobs".into(), held("permits", 2));
    expected.insert("a*[x:read".into(), held("shared", 2));
    let mut seen = listed(&output);
    // The reader has renewed its lock on the node that has lost all keys, or not yet.
    let reads = seen.get_mut("a*[x:read").expect("the reader");
    reads.1 = reads.1.min(2);
    assert_eq!(seen, expected);
    let shown = text(&bed.output("--prefix a*[x: list").stdout);
    let line = shown
        .lines()
        .find(|it| it.starts_with("a*[x:plain: held by web-3 for another "));
    let line = line.unwrap_or_else(|| panic!("{shown}"));
    assert!(line.ends_with(", on 2 of 3 nodes"), "{line}");
    assert!(
        shown.contains("a*[x:jobs: permit #0 held by web-3"),
        "{shown}"
    );
    reader.kill().unwrap();
    reader.wait().unwrap();
}

#[test]
fn more_locks_than_one_step_has_are_found_while_a_node_is_down_and_an_outage_is_told() {
    let bed = Bed::new();
    let fill = "for i = 1, 3000 do redis.call('SET', 'app:' .. i, 'theirs', 'PX', 600000) end";
    bed.command(&format!("EVAL \"{fill}\" 0"));
    let list = || bed.output("--prefix app: list --json");
    assert_eq!(listed(&list()).len(), 3000);
    bed.servers.get(0).kill();
    let output = list();
    assert_eq!(listed(&output).len(), 3000);
    let plain = text(&bed.output("--prefix app: list").stderr);
    let down = bed.servers.urls()[0].replace("redis://", "");
    assert!(
        plain.contains(&format!("{down} was not searched: ")),
        "{plain}"
    );
    bed.command_at(1, "ACL SETUSER default -scan");
    let output = list();
    assert_eq!(code(&output), 69);
    let failure = text(&output.stderr);
    assert!(
        failure.contains("2 of 3 nodes were not searched"),
        "{failure}"
    );
    assert!(failure.contains("right to SCAN"), "{failure}");
    bed.servers.get(1).kill();
    let failure = text(&list().stderr);
    assert!(failure.ends_with("see `redlock nodes`\"}\n"), "{failure}");
}

#[test]
fn several_keys_are_locked_together_and_a_wait_names_the_one_that_is_taken() {
    let bed = Bed::new();
    let mut holder = bed.run("--client-name web-3", "echo > held; exec sleep 60");
    let mut holder = holder.spawn().unwrap();
    bed.trace("held");
    let output = bed.output("run -n b k a -- true");
    let refusal = text(&output.stderr);
    assert_eq!(code(&output), 75, "{refusal}");
    assert!(refusal.contains("k is taken: held by web-3"), "{refusal}");
    assert_eq!(bed.code_of("run -n b -- true"), 0, "all or none");
    holder.kill().unwrap();
    holder.wait().unwrap();
    let mut all = bed.redlock("run b k a -- sh -c");
    let all = all
        .arg("echo > both; exec sleep 60")
        .current_dir(bed.path("."));
    let mut all = all.spawn().unwrap();
    bed.trace("both");
    let keys: Vec<_> = listed(&bed.output("list --json")).into_keys().collect();
    assert_eq!(keys, ["a", "b", "k"]);
    all.kill().unwrap();
    all.wait().unwrap();
}

#[test]
fn nodes_and_a_watch_name_the_master_of_a_group_and_the_leader_of_an_election() {
    let group = Sentinels::spawn().unwrap();
    let redlock = |arguments: &[&str]| {
        let mut command = program(arguments);
        command.env("REDLOCK_DURABILITY", "lossless-failovers");
        command.env("REDLOCK_NODES", group.url());
        command
    };
    let candidate = [
        "--client-name",
        "web-3",
        "elect",
        "boss",
        "--",
        "sleep",
        "60",
    ];
    let candidate = redlock(&candidate).spawn().unwrap();
    wait_for("the leader", || {
        let output = redlock(&["inspect", "boss"]).output().unwrap();
        text(&output.stdout)
            .starts_with("boss: held by web-3")
            .then_some(())
    });
    let mut watch = redlock(&["watch", "boss"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(watch.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    let outputs = [&["nodes", "--json"][..], &["nodes"], &["list", "--json"]];
    let [node, nodes, list] = outputs.map(|it| redlock(it).output().unwrap());
    for mut child in [candidate, watch] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (time, holder) = line.split_once(' ').unwrap();
    assert!(holder.starts_with("held by web-3 for another "), "{line}");
    assert!(
        time.len() == "09:00:00Z".len() && time.ends_with('Z'),
        "{line}"
    );
    let node: Value = serde_json::from_slice(&node.stdout).unwrap();
    let master = group.server_proxy(group.settle().unwrap()).address();
    assert_eq!(node["owner"], master.to_string(), "{node}");
    let nodes = text(&nodes.stdout);
    assert!(nodes.contains(&format!(" ms  {master}")), "{nodes}");
    assert_eq!(listed(&list)["boss"], ("held".to_owned(), 1));
}
