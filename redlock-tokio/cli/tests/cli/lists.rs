//! What is held now, and by which names it is found.

use std::collections::BTreeMap;

use redlock_kit::Sentinels;

use crate::process::{Bed, Ended, program, wait_for};

/// Returns the locks of a list by their keys: the state, and on how many nodes.
fn listed(ended: &Ended) -> BTreeMap<String, (String, u64)> {
    let mut listed = BTreeMap::new();
    for value in ended.values() {
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
    let take = |lock: &str| {
        let taking = format!("--client-name web-3 --prefix a*[x: run --keep-for 9s {lock} -- true");
        bed.redlock(&taking).ends(0);
    };
    for lock in ["plain", "both:slot:x", "--writer written"] {
        take(lock);
    }
    take("--permits 2 jobs");
    take("--permits 2 jobs");
    let reader = bed.redlock("--prefix a*[x: run --shared read -- sh -c");
    let _reader = reader.arg("echo > reads; exec sleep 60").start();
    bed.trace("reads");
    // Others: of another prefix, of another type, without an end, and what a fence leaves behind.
    bed.command("SET axx:other theirs PX 60000");
    bed.command("RPUSH a*[x:list a");
    bed.command("SET a*[x:word theirs");
    bed.servers.get(2).kill();
    take("two");
    bed.servers.get(2).restart().unwrap();
    // A minority has it, so it is free.
    bed.command_at(0, "SET a*[x:one theirs PX 60000");
    let json = bed.redlock("--prefix a*[x: list --json").ends(0);
    let held = |state: &str, nodes| (state.to_owned(), nodes);
    let mut expected: BTreeMap<_, _> = ["plain", "both:slot:x", "written", "two"]
        .map(|key| (format!("a*[x:{key}"), held("held", 2)))
        .into();
    expected.insert("a*[x:jobs".into(), held("permits", 2));
    expected.insert("a*[x:read".into(), held("shared", 2));
    let mut seen = listed(&json);
    // The reader has renewed its lock on the node that has lost all keys, or not yet.
    let reads = seen.get_mut("a*[x:read").expect("the reader");
    reads.1 = reads.1.min(2);
    assert_eq!(seen, expected);
    let list = bed.redlock("--prefix a*[x: list").ends(0);
    let shown = list.says("a*[x:jobs: permit #0 held by web-3").out;
    let line = shown
        .lines()
        .find(|it| it.starts_with("a*[x:plain: held by web-3 for another "));
    let line = line.unwrap_or_else(|| panic!("{shown}"));
    assert!(line.ends_with(", on 2 of 3 nodes"), "{line}");
}

#[test]
fn more_locks_than_one_step_has_are_found_while_a_node_is_down_and_an_outage_is_told() {
    let bed = Bed::new();
    let fill = "for i = 1, 300 do redis.call('SET', 'app:' .. i, 'theirs', 'PX', 600000) end";
    bed.command(&format!("EVAL \"{fill}\" 0"));
    let list = || bed.redlock("--prefix app: list --json");
    let scripts = || {
        let calls = "string.match(redis.call('INFO', 'commandstats'), 'cmdstat_eval:calls=(%d+)')";
        let calls = bed.command_at(0, &format!("EVAL \"return tonumber({calls})\" 0"));
        calls.trim_start_matches(':').parse::<usize>().unwrap()
    };
    let before = scripts();
    assert_eq!(listed(&list().ends(0)).len(), 300);
    // A script for each step of a search, and not for each lock.
    let calls = scripts() - before;
    assert!(calls < 60, "{calls}");
    // A key that the user has no right to hides no lock.
    bed.command("SET other theirs PX 600000");
    bed.command("ACL SETUSER default resetkeys ~app:* ~redlock:*");
    assert_eq!(listed(&bed.redlock("list --json").ends(0)).len(), 300);
    bed.command("ACL SETUSER default allkeys");
    bed.servers.get(0).kill();
    let mut with_one_down = list().ends(0);
    with_one_down.err.clear();
    assert_eq!(listed(&with_one_down).len(), 300);
    let plain = bed.redlock("--prefix app: list").ends(0);
    let down = bed.servers.get(0).address();
    plain.says(&format!("{down} was not searched: "));
    bed.command_at(1, "ACL SETUSER default -scan");
    let failure = list().ends(69).says("2 of 3 nodes were not searched");
    failure.says("right to SCAN");
    bed.servers.get(1).kill();
    list().ends(69).says("see `redlock nodes`\"}\n");
}

#[test]
fn several_keys_are_locked_together_and_a_wait_names_the_one_that_is_taken() {
    let bed = Bed::new();
    let holder = bed.holder("--client-name web-3");
    let refusal = bed.redlock("run -n b k a -- true").ends(75);
    refusal.says("k is taken: held by web-3");
    // All or none.
    bed.redlock("run -n b -- true").ends(0);
    drop(holder);
    let all = bed.redlock("run b k a -- sh -c");
    let _all = all.arg("echo > both; exec sleep 60").start();
    bed.trace("both");
    let list = bed.redlock("list --json").ends(0);
    assert!(listed(&list).into_keys().eq(["a", "b", "k"]));
}

#[test]
fn nodes_and_a_watch_name_the_master_of_a_group_and_the_leader_of_an_election() {
    let group = Sentinels::spawn().unwrap();
    let redlock = |arguments: &str| {
        let program = program(arguments.split_whitespace());
        let program = program.env("REDLOCK_DURABILITY", "lossless-failovers");
        program.env("REDLOCK_NODES", group.url())
    };
    let _candidate = redlock("--client-name web-3 elect boss -- sleep 60").start();
    wait_for("the leader", || {
        let inspection = redlock("inspect boss").ends(0).out;
        let is_held = inspection.starts_with("boss: held by web-3");
        is_held.then_some(())
    });
    let watch = redlock("watch boss").start();
    let line = watch.says("\n");
    let (time, holder) = line.split_once(' ').unwrap();
    assert!(holder.starts_with("held by web-3 for another "), "{line}");
    assert!(
        time.len() == "09:00:00Z".len() && time.ends_with('Z'),
        "{line}"
    );
    let node = redlock("nodes --json").ends(0).value();
    let master = group.server_proxy(group.settle().unwrap()).address();
    assert_eq!(node["owner"], master.to_string(), "{node}");
    redlock("nodes").ends(0).says(&format!(" ms  {master}"));
    let list = listed(&redlock("list --json").ends(0));
    assert_eq!(list["boss"], ("held".to_owned(), 1));
}
