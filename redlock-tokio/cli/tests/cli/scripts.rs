//! For scripts: exit codes, the environment, signals, JSON.

use std::{collections::BTreeSet, fs, os::unix::process::ExitStatusExt, thread, time::Duration};

use serde_json::Value;

use crate::process::{Bed, Program, program, wait_for};

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
    let help = program(["--help"]).ends(0).out.replace(',', " ");
    let help: BTreeSet<_> = help.split_whitespace().collect();
    let unknown = explained()
        .into_iter()
        .find(|it| it.parse::<u8>().is_ok() && !help.contains(&**it));
    assert_eq!(unknown, None);
}

#[test]
fn each_exit_code_of_the_page_is_seen_and_no_other() {
    let bed = Bed::new();
    let mut seen = BTreeSet::from([76]);
    let mut expect = |code: i32, program: Program| {
        program.ends(code);
        seen.insert(code);
    };
    expect(0, bed.run("", "true"));
    expect(3, bed.run("", "exit 3"));
    expect(143, bed.run("", "kill -TERM $$"));
    expect(64, bed.run("--wait never", "true"));
    expect(64, bed.run("--grace 6s", "true"));
    expect(64, bed.redlock("watch k --every 0"));
    expect(64, bed.redlock("elect k --shared -- true"));
    expect(64, program(["run", "k", "--", "true"]));
    expect(64, bed.run("--max-ttl 1s --ttl 2s", "true"));
    expect(0, bed.run("--max-ttl 1s", "true"));
    expect(64, bed.redlock("run k j --shared -- true"));
    expect(64, bed.redlock("run -- true"));
    expect(64, bed.redlock("list k"));
    expect(0, bed.redlock("list"));
    expect(0, bed.redlock("help run"));
    expect(126, bed.redlock("run k -- /etc/passwd"));
    expect(127, bed.redlock("run k -- /no/such/command"));
    // As shells and `env` start it: without a line that names a shell.
    let plain = "echo exit 3 > plain; chmod +x plain; exit 3";
    expect(3, bed.run("", plain));
    let plain = bed.path("plain");
    expect(3, bed.redlock("run k --").arg(plain));
    let holder = bed.holder("");
    expect(75, bed.run("-n", "true"));
    expect(75, bed.run("--wait 50ms", "true"));
    expect(9, bed.run("-n -E 9", "true"));
    expect(0, bed.redlock("unlock k --yes"));
    let to_a_full_disk = ["sh", "-c", "exec \"$@\" > /dev/full", "sh"];
    expect(70, program(["man"]).by(&to_a_full_disk));
    bed.command("SET word theirs");
    expect(65, bed.redlock("unlock word --yes"));
    holder.ends(76);
    // Servers that say less have no vote, unless an option or a file allows that.
    bed.command("ACL SETUSER default -info");
    expect(69, bed.run("-n", "true"));
    bed.servers.get(0).kill();
    bed.servers.get(1).kill();
    expect(69, bed.run("-n", "true"));
    expect(69, bed.redlock("list"));
    // The codes of commands are theirs.
    let own = |code: &i32| [3, 9].contains(code);
    let named = |code: i32| match code {
        143 => "128 + n".to_owned(),
        code => code.to_string(),
    };
    let seen = seen.into_iter().filter(|it| !own(it)).map(named);
    assert_eq!(seen.collect::<BTreeSet<_>>(), explained());
}

#[test]
fn the_command_knows_its_lock_and_its_fence_grows() {
    let bed = Bed::new();
    let script = "echo $REDLOCK_KEY $REDLOCK_TOKEN ${REDLOCK_FENCE-none}";
    let run = |options: &str| {
        let line = bed.run(options, script).ends(0).out;
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
    let program = bed.run("", script).start();
    let (holder, command) = (program.pid(), bed.pid("pid"));
    let guardian = holder.guardian();
    assert_eq!(holder.children(), [guardian]);
    assert_eq!(guardian.children(), [command]);
    holder.signal("USR1");
    bed.trace("usr1");
    holder.signal("TERM");
    program.ends(41);
    assert!([command, guardian].iter().all(|it| it.state().is_none()));
    // The lock is free at once.
    bed.run("-n", "true").ends(0);
}

#[test]
fn a_signal_ends_the_wait_without_the_command() {
    let bed = Bed::new();
    let holder = bed.holder("");
    let mut waiting = bed.run("", "echo > never").start();
    // It may be connecting still, or waiting.
    thread::sleep(Duration::from_millis(300));
    waiting.pid().signal("INT");
    // So that a script ends too.
    assert_eq!(waiting.status().signal(), Some(2));
    assert!(!bed.path("never").exists());
    holder.pid().signal("TERM");
    holder.ends(143);
}

#[test]
fn an_empty_variable_is_none_in_the_environment_and_in_a_file() {
    let bed = Bed::new();
    let list = bed.servers.urls().join(",");
    let rows = PAGE.lines().filter(|it| it.starts_with("| `--"));
    let names = rows.flat_map(|it| it.split('`').filter(|it| it.starts_with("REDLOCK_")));
    // Without it, servers that have just started do not vote.
    let names: Vec<_> = names.filter(|it| *it != "REDLOCK_DURABILITY").collect();
    assert!(names.len() > 12, "{names:?}");
    let file = names
        .iter()
        .map(|it| format!("{it}=\n"))
        .collect::<String>();
    fs::write(bed.path("settings"), file + "REDLOCK_DURABILITY=\n").unwrap();
    for options in ["", "--config settings"] {
        let program = bed.redlock(&format!("{options} --nodes {list} run k -- true"));
        let empty = names.iter().fold(program, |it, name| it.env(name, ""));
        empty.ends(0);
    }
    let durability = bed
        .redlock("run -n k -- true")
        .env("REDLOCK_DURABILITY", "");
    durability.ends(69).says("quarantined");
}

#[test]
fn scripts_get_json() {
    let bed = Bed::new();
    let json = |arguments: &str| {
        let redlock = bed.redlock(arguments).arg("--json");
        redlock.env("REDLOCK_CLIENT_NAME", "web-3")
    };
    for node in json("nodes").ends(0).values() {
        assert_eq!(node["state"], "voting");
        assert!(node["version"].as_str().unwrap().contains('.'));
        assert!(node["round_trip_seconds"].as_f64().unwrap() > 0.0);
    }
    let take = bed.run("--client-name web-3 --keep-for 5s", "echo $REDLOCK_TOKEN");
    let token = take.ends(0).out;
    let inspection = json("inspect k").ends(0).value();
    assert_eq!(inspection["state"], "held");
    assert_eq!(inspection["holders"][0]["client_name"], "web-3");
    assert_eq!(inspection["holders"][0]["token"], token.trim());
    assert_eq!(inspection["nodes"].as_array().unwrap().len(), 3);
    let refused = json("unlock k --yes --holder other").ends(75).values();
    assert_eq!(refused[0]["holders"][0]["client_name"], "web-3");
    assert_eq!(refused[1]["error"], "contended");
    assert_eq!(json("inspect k").ends(0).value()["state"], "held");
    let unlocked = json("unlock k --yes --holder web-3").ends(0).values();
    let nodes = unlocked[1]["unlocked"].as_array().unwrap();
    assert_eq!(nodes.iter().filter(|it| it["deleted"] == 1).count(), 3);
    assert_eq!(json("inspect k").ends(0).value()["state"], "free");
}

#[test]
fn a_lock_that_looks_free_may_have_a_prefix() {
    let bed = Bed::new();
    let hint = |arguments: &str| bed.redlock(arguments).ends(0).err;
    hint("--prefix app: run --keep-for 5s k -- true");
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
fn a_watch_writes_a_line_for_each_holder() {
    let bed = Bed::new();
    let watch = bed.redlock("watch k --every 20ms --json").start();
    let wait_for = |expected: &[&str]| {
        wait_for("the next line", || {
            let lines = watch.out();
            let values = lines.lines().filter_map(|it| serde_json::from_str(it).ok());
            let states = values.map(|it: Value| it["state"].as_str().unwrap().to_owned());
            // While the nodes change one after the other, they may differ.
            let states: Vec<_> = states.filter(|it| it != "split").collect();
            (states == expected).then_some(())
        });
    };
    wait_for(&["free"]);
    let holder = bed.holder("");
    wait_for(&["free", "held"]);
    holder.pid().signal("TERM");
    holder.ends(143);
    wait_for(&["free", "held", "free"]);
}
