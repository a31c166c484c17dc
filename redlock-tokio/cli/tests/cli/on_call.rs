//! The program tells a person on call what matters, without being asked.

use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader},
    process::{Output, Stdio},
};

use serde_json::Value;

use crate::process::{Bed, code, program, text, wait_for};

fn value(output: &Output) -> Value {
    let both = [&output.stdout[..], &output.stderr].concat();
    let text = text(&both);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn a_refusal_names_the_key_and_the_holder() {
    let bed = Bed::new();
    let holder = "--client-name web-3 --prefix app:";
    for keep in ["order:42", "--permits 1 jobs"] {
        let output = bed.output(&format!("{holder} run --keep-for 9s {keep} -- true"));
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    }
    let refusals = [
        (
            "run -n order:42 -- true",
            "app:order:42 is taken: held by web-3 for",
        ),
        (
            "run -w 50ms order:42 -- true",
            "app:order:42 is taken: held",
        ),
        (
            "run -n --permits 1 jobs -- true",
            "app:jobs is taken: permit #0 held by web-3",
        ),
    ];
    for (arguments, expected) in refusals {
        let output = bed.output(&format!("--prefix app: {arguments}"));
        let shown = text(&output.stderr);
        assert_eq!(code(&output), 75, "{shown}");
        assert!(shown.contains(expected), "{arguments}: {shown}");
        let value = value(&bed.output(&format!("--json --prefix app: {arguments}")));
        assert_eq!(value["error"], "contended", "{value}");
        let permit = &value["permits"][0];
        let holder = if permit.is_null() { &value } else { permit };
        assert_eq!(holder["holders"][0]["client_name"], "web-3", "{value}");
        assert!(holder["holders"][0]["remaining_seconds"].as_f64() > Some(0.0));
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for arguments in [&["man"][..], &["completions", "bash"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = program(arguments).stdout(full).output().unwrap();
        assert_eq!(code(&output), 70, "{}", text(&output.stderr));
    }
}

#[test]
fn what_is_not_a_lock_is_deleted_only_if_its_value_is_named() {
    let bed = Bed::new();
    bed.command("RPUSH list a");
    bed.command("SET word theirs");
    for (key, reason) in [("list", "of another type"), ("word", "--holder")] {
        let output = bed.output(&format!("unlock {key} --yes"));
        let shown = text(&output.stderr);
        assert_eq!(code(&output), 65, "{shown}");
        assert!(
            shown.contains("not a lock") && shown.contains(reason),
            "{shown}"
        );
        let value = value(&bed.output(&format!("unlock {key} --yes --json")));
        assert_eq!(value["error"], "not_a_lock");
        assert_eq!(bed.code_of(&format!("run -n {key} -- true")), 75);
    }
    assert_eq!(bed.code_of("unlock word --yes --holder theirs"), 0);
    assert_eq!(bed.code_of("run -n word -- true"), 0);
}

#[test]
fn a_word_without_an_end_on_one_node_stays_when_the_lock_is_freed() {
    let bed = Bed::new();
    bed.servers.get(2).kill();
    assert_eq!(
        bed.code_of("--client-name web-3 run --keep-for 9s k -- true"),
        0
    );
    bed.servers.get(2).restart().unwrap();
    bed.command_at(2, "SET k theirs");
    let output = bed.output("unlock k --yes");
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let inspection = value(&bed.output("inspect k --json"));
    assert_eq!(inspection["nodes"][2]["holder"]["value"], "theirs");
    assert_eq!(inspection["nodes"][0]["holder"], Value::Null);
}

#[test]
fn a_lock_that_restarted_nodes_may_have_forgotten_is_not_called_free() {
    let bed = Bed::new();
    assert_eq!(bed.code_of("run --keep-for 9s k -- true"), 0);
    for restarted in 0..2 {
        bed.servers.get(restarted).kill();
        bed.servers.get(restarted).restart().unwrap();
    }
    for arguments in ["inspect k", "unlock other --yes", "inspect k --json"] {
        let mut command = bed.redlock(&format!("--max-ttl 10m {arguments}"));
        command.env("REDLOCK_DURABILITY", "volatile");
        let output = command.output().unwrap();
        let shown = text(&output.stdout);
        assert_eq!(code(&output), 69, "{arguments}: {shown}");
        assert!(
            shown.contains("unknown") && shown.contains("up as the master for long enough"),
            "{shown}"
        );
    }
}

#[test]
fn a_look_shows_the_database_and_how_many_permits_are_taken() {
    let bed = Bed::new();
    let urls = bed.servers.iter().map(|it| format!("{}/1", it.url()));
    let urls: Vec<_> = urls.collect();
    for arguments in ["nodes", "inspect k"] {
        let mut command = bed.redlock(arguments);
        let output = command.env("REDLOCK_NODES", urls.join(",")).output();
        let shown = text(&output.unwrap().stdout);
        for url in &urls {
            let url = url.trim_start_matches("redis://");
            assert!(shown.contains(url), "{shown}");
        }
    }
    assert_eq!(bed.code_of("run --permits 1 --keep-for 9s jobs -- true"), 0);
    let shown = text(&bed.output("inspect jobs").stdout);
    assert!(shown.starts_with("jobs: 1 permit is taken\n"), "{shown}");
    let inspection = value(&bed.output("inspect jobs --json"));
    assert_eq!(inspection["state"], "permits");
    let permit = &inspection["nodes"][0]["permits"][0];
    let verdict = &inspection["permits"][0];
    assert_eq!(permit["slot"], verdict["slot"]);
    assert_eq!(permit["token"], verdict["holders"][0]["token"]);
    assert!(
        permit["remaining_seconds"].as_f64() > Some(0.0),
        "{inspection}"
    );
}

#[test]
fn nodes_say_when_the_reserve_is_gone() {
    let bed = Bed::new();
    let look = || {
        let (plain, json) = (bed.output("nodes"), bed.output("nodes --json"));
        assert_eq!(code(&plain), code(&json));
        (
            code(&plain),
            text(&plain.stderr),
            value(&json)["reserve"].as_i64(),
        )
    };
    assert_eq!(look(), (0, String::new(), Some(1)));
    bed.servers.get(0).kill();
    let (code, shown, reserve) = look();
    assert_eq!((code, reserve), (0, Some(0)));
    assert!(shown.contains("no reserve: 2 of 3 nodes vote"), "{shown}");
    bed.servers.get(1).kill();
    let (code, shown, reserve) = look();
    assert_eq!((code, reserve), (69, Some(-1)));
    assert!(shown.contains("an outage: 1 of 3 nodes votes"), "{shown}");
}

#[test]
fn two_nodes_have_no_reserve() {
    let bed = Bed::new();
    let two = bed.servers.urls()[..2].join(",");
    let output = bed.redlock("nodes").env("REDLOCK_NODES", two).output();
    let shown = text(&output.unwrap().stderr);
    assert!(shown.contains("no reserve: 2 of 2 nodes vote,"), "{shown}");
}

#[test]
fn what_repeats_ends_when_nobody_reads_it() {
    let bed = Bed::new();
    for arguments in ["watch k --every 1h", "nodes --watch 1h"] {
        let mut command = bed.redlock(arguments);
        let mut watch = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(watch.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        assert!(watch.try_wait().unwrap().is_none(), "{arguments}");
        drop(lines);
        let ended = wait_for(arguments, || watch.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0));
    }
}

#[test]
fn unlock_says_who_has_freed_what() {
    let bed = Bed::new();
    let take = || {
        let mut take = bed.run("--client-name web-3 --keep-for 9s", "echo $REDLOCK_TOKEN");
        text(&take.output().unwrap().stdout).trim().to_owned()
    };
    let token = take();
    let output = bed.output("--client-name bastion unlock k --yes");
    let shown = text(&output.stdout);
    let mut lines = shown.lines();
    let freed = lines.find(|it| it.starts_with("k: released by force by "));
    let freed = freed.unwrap_or_else(|| panic!("{shown}"));
    assert!(freed.contains("@bastion: "), "{freed}");
    let held = format!("held by web-3 with token {token}");
    assert!(freed.ends_with(&held), "{freed}");
    take();
    let freed = value(&bed.output("--client-name bastion unlock k --yes --json"));
    let by = freed["by"].as_str().unwrap();
    assert!(by.ends_with("@bastion"), "{freed}");
    take();
    let mut unnamed = bed.redlock("unlock k --yes --json");
    let freed = value(&unnamed.env("REDLOCK_CLIENT_NAME", "").output().unwrap());
    assert!(!freed["by"].as_str().unwrap().ends_with('@'), "{freed}");
}

#[test]
fn keys_are_shown_as_people_write_them() {
    let bed = Bed::new();
    for (key, shown) in [("заказ:42", "заказ:42"), ("a\tb", r"a\tb")] {
        let mut command = bed.redlock("inspect");
        let output = command.arg(key).output().unwrap();
        let first = format!("{shown}: free\n");
        assert!(text(&output.stdout).starts_with(&first), "{output:?}");
        let output = command.arg("--json").output().unwrap();
        assert_eq!(value(&output)["key"], shown);
    }
}
