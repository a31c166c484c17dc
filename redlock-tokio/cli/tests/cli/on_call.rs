//! The program tells a person on call what matters, without being asked.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use serde_json::Value;

use crate::process::{Bed, wait_for};

#[test]
fn a_refusal_names_the_key_and_the_holder() {
    let bed = Bed::new();
    let holder = "--client-name web-3 --prefix app:";
    for keep in ["order:42", "--permits 1 jobs"] {
        let take = format!("{holder} run --keep-for 9s {keep} -- true");
        bed.redlock(&take).ends(0);
    }
    for (lock, expected) in [
        ("order:42", "app:order:42 is taken: held by web-3 for"),
        ("--permits 1 jobs", "app:jobs is taken: permit #0 held by"),
    ] {
        let run = |json| {
            let arguments = format!("{json} --prefix app: run -n {lock} -- true");
            bed.redlock(&arguments).ends(75)
        };
        run("").says(expected);
        let value = run("--json").value();
        assert_eq!(value["error"], "contended", "{value}");
        let permit = &value["permits"][0];
        let holder = if permit.is_null() { &value } else { permit };
        assert_eq!(holder["holders"][0]["client_name"], "web-3", "{value}");
        assert!(holder["holders"][0]["remaining_seconds"].as_f64() > Some(0.0));
    }
}

#[test]
fn what_is_not_a_lock_is_deleted_only_if_its_value_is_named() {
    let bed = Bed::new();
    bed.command("RPUSH list a");
    bed.command("SET word theirs");
    for (key, reason) in [("list", "of another type"), ("word", "--holder")] {
        let unlock = || bed.redlock(&format!("unlock {key} --yes"));
        unlock().ends(65).says("not a lock").says(reason);
        let value = unlock().arg("--json").ends(65).value();
        assert_eq!(value["error"], "not_a_lock");
        bed.redlock(&format!("run -n {key} -- true")).ends(75);
    }
    // The whole value, of which only the beginning is shown.
    let long = "x".repeat(60);
    bed.command(&format!("SET long {long}"));
    let unlock = |value: &str| bed.redlock(&format!("unlock long --yes --holder {value}"));
    unlock(&(long[..48].to_owned() + "..")).ends(75);
    unlock(&long).ends(0);
    bed.redlock("unlock word --yes --holder theirs").ends(0);
    bed.redlock("run -n word -- true").ends(0);
}

#[test]
fn a_word_without_an_end_on_one_node_stays_when_the_lock_is_freed() {
    let bed = Bed::new();
    bed.servers.get(2).kill();
    bed.run("--keep-for 9s", "true").ends(0);
    bed.servers.get(2).restart().unwrap();
    bed.command_at(2, "SET k theirs");
    bed.redlock("unlock k --yes").ends(0);
    let inspection = bed.redlock("inspect k --json").ends(0).value();
    assert_eq!(inspection["nodes"][2]["holder"]["value"], "theirs");
    assert_eq!(inspection["nodes"][0]["holder"], Value::Null);
}

#[test]
fn a_lock_that_restarted_nodes_may_have_forgotten_is_not_called_free() {
    let bed = Bed::new();
    bed.run("--keep-for 9s", "true").ends(0);
    for restarted in 0..2 {
        bed.servers.get(restarted).kill();
        bed.servers.get(restarted).restart().unwrap();
    }
    for arguments in ["inspect k", "unlock other --yes", "inspect k --json"] {
        let look = bed.redlock(&format!("--max-ttl 10m {arguments}"));
        let seen = look.env("REDLOCK_DURABILITY", "volatile").ends(69);
        seen.says("unknown")
            .says("up as the master for long enough");
    }
}

#[test]
fn a_look_shows_the_database_and_how_many_permits_are_taken() {
    let bed = Bed::new();
    let urls = bed.servers.iter().map(|it| format!("{}/1", it.url()));
    let urls: Vec<_> = urls.collect();
    for arguments in ["nodes", "inspect k"] {
        let look = bed.redlock(arguments);
        let mut seen = look.env("REDLOCK_NODES", urls.join(",")).ends(0);
        for url in &urls {
            seen = seen.says(url.trim_start_matches("redis://"));
        }
    }
    let take = "run --permits 1 --keep-for 9s jobs -- true";
    bed.redlock(take).ends(0);
    let shown = bed.redlock("inspect jobs").ends(0).out;
    assert!(shown.starts_with("jobs: 1 permit is taken\n"), "{shown}");
    let inspection = bed.redlock("inspect jobs --json").ends(0).value();
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
    let look = |code| {
        let reserve = bed.redlock("nodes --json").ends(code).values();
        let reserve = reserve.iter().find_map(|it| it["reserve"].as_i64());
        (bed.redlock("nodes").ends(code).err, reserve)
    };
    assert_eq!(look(0), (String::new(), Some(1)));
    let two = bed.servers.urls()[..2].join(",");
    let nodes = bed.redlock("nodes").env("REDLOCK_NODES", two).ends(0);
    nodes.says("no reserve: 2 of 2 nodes vote,");
    bed.servers.get(0).kill();
    let (shown, reserve) = look(0);
    assert_eq!(reserve, Some(0));
    assert!(shown.contains("no reserve: 2 of 3 nodes vote"), "{shown}");
    bed.servers.get(1).kill();
    let (shown, reserve) = look(69);
    assert_eq!(reserve, Some(-1));
    assert!(shown.contains("an outage: 1 of 3 nodes votes"), "{shown}");
}

#[test]
fn what_repeats_ends_when_nobody_reads_it() {
    let bed = Bed::new();
    for arguments in ["watch k --every 1h", "nodes --watch 1h"] {
        let mut program = bed.redlock(arguments).0;
        let mut watch = program.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(watch.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        assert!(watch.try_wait().unwrap().is_none(), "{arguments}");
        drop(lines);
        let ended = wait_for(arguments, || watch.try_wait().unwrap());
        assert_eq!(ended.code(), Some(141));
    }
}

#[test]
fn unlock_says_who_has_freed_what() {
    let bed = Bed::new();
    let take = || {
        let take = bed.run("--client-name web-3 --keep-for 9s", "echo $REDLOCK_TOKEN");
        take.ends(0).out
    };
    let token = take();
    let unlock = bed.redlock("--client-name bastion unlock k --yes");
    let shown = unlock.ends(0).says("@bastion: ").out;
    let mut lines = shown.lines();
    let freed = lines.find(|it| it.starts_with("k: released by force by "));
    let freed = freed.unwrap_or_else(|| panic!("{shown}"));
    let held = format!("held by web-3 with token {}", token.trim());
    assert!(freed.ends_with(&held), "{freed}");
    let freed_by = |name: &str| {
        take();
        let unlock = bed.redlock("unlock k --yes --json");
        let freed = unlock.env("REDLOCK_CLIENT_NAME", name).ends(0).value();
        freed["by"].as_str().unwrap().to_owned()
    };
    assert!(freed_by("bastion").ends_with("@bastion"));
    assert!(!freed_by("").ends_with('@'));
}

#[test]
fn keys_are_shown_as_people_write_them_and_scripts_get_each_byte() {
    let bed = Bed::new();
    let keys: [(&[u8], &str); 5] = [
        ("заказ:42".as_bytes(), "заказ:42"),
        (b"a\tb", r"a\tb"),
        (br"a\tb", r"a\tb"),
        (b"a\0b\n", r"a\x00b\n"),
        (b"a\xff", r"a\xff"),
    ];
    for (key, _) in keys {
        let word: String = key.iter().map(|it| format!(r"\x{it:02x}")).collect();
        bed.command(&format!("SET \"{word}\" theirs PX 600000"));
    }
    let list = || bed.redlock("list --json").ends(0).values();
    for (count, (key, shown)) in (1..).zip(keys) {
        let text = str::from_utf8(key).ok();
        let listed = list().into_iter().find(|it| it["key"].as_str() == text);
        let listed = listed.unwrap_or_else(|| panic!("{key:?} in {:?}", list()));
        let hex = listed["key_hex"].as_str().unwrap();
        let redlock = |command: &str| bed.redlock(&format!("{command} --hex {hex}"));
        redlock("inspect")
            .ends(0)
            .says(&format!("{shown}: held by"));
        let inspection = redlock("inspect --json").ends(0).value();
        assert_eq!(inspection["key"].as_str(), text);
        redlock("unlock --yes").ends(0);
        assert_eq!(list().len(), keys.len() - count, "{key:?}");
    }
    bed.redlock("inspect --hex 0g").ends(64).says("`0g`");
}
