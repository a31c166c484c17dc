//! The program has the configuration of a service.

use std::{fs, time::Duration};

use redlock_kit::{Cluster, Sentinels};
use redlock_tokio::{Durability, Redlock};
use serde_json::Value;

use crate::process::{Bed, PROGRAM, program, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn the_program_and_a_service_with_one_list_exclude_each_other_over_a_cluster() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::builder().replicas(0).spawn().unwrap());
    let cluster = cluster.await.unwrap();
    let seeds = cluster.urls().join(",").replace("redis://", "");
    for parameters in ["", "?voters=1", "?tags=a,b,c"] {
        let list = format!("redis+cluster://{seeds}{parameters}");
        let builder = Redlock::builder().nodes(&list).client_name("web-3");
        let builder = builder.durability(Durability::LosslessFailovers);
        let service = builder.node_timeout(Duration::from_millis(500));
        let service = service.build().await.unwrap();
        let key = format!("k{parameters}");
        let guard = service.lock(&key).wait(Duration::from_secs(20)).await;
        let guard = guard.unwrap();
        let redlock = |arguments: &str| {
            let program = program(arguments.replace("KEY", &key).split_whitespace());
            let program = program.env("REDLOCK_DURABILITY", "lossless-failovers");
            program.env("REDLOCK_NODES", &list)
        };
        // A busy machine may need several looks to confirm the owners of the slots.
        let says = |arguments: &str, words: &str| {
            wait_for(format_args!("{words:?}"), || {
                let mut looking = redlock(arguments).start();
                looking.status();
                looking.said().contains(words).then_some(())
            });
        };
        says("inspect KEY", "held by web-3");
        says("list", &format!("{key}: held by web-3"));
        says("run -w 500ms KEY -- true", "held by web-3");
        guard.release().await;
        let locked = redlock("run -w 20s KEY -- echo locked").ends(0);
        assert_eq!(locked.out, "locked\n");
        says("inspect KEY", "other voters or tags");
    }
}

#[test]
fn the_window_of_a_sentinel_group_is_that_of_the_services() {
    let group = Sentinels::spawn().unwrap();
    let run = |window: &str| {
        let run = "run -w 20s --ttl 3s k -- echo locked";
        let program = program(run.split_whitespace()).env("REDLOCK_NODES", group.url());
        let program = program.env("REDLOCK_DURABILITY", "lossless-failovers");
        program.env("REDLOCK_CONFIRMATION_WINDOW", window)
    };
    let refused = run("3s").ends(64).says("--confirmation-window");
    refused.says_nothing_of("Redlock::builder");
    assert_eq!(run("1s").ends(0).out, "locked\n");
}

#[test]
fn a_file_has_the_whole_configuration_and_options_and_variables_count_more() {
    let bed = Bed::new();
    let path = bed.path("settings");
    let urls = bed.servers.urls().join(",\n ");
    let settings = format!(
        "\u{feff}# ours\r\nREDLOCK_NODES=\"{urls}\"\nexport REDLOCK_PREFIX='file:' # a space before it\n\
         REDLOCK_TTL=4s\nREDLOCK_CLIENT_NAME=web-3\nREDLOCK_ALLOW_UNVETTED_NODES=true\nOTHER=theirs\n"
    );
    fs::write(&path, settings).unwrap();
    bed.command("ACL SETUSER default -info");
    let run = |options: &[&str], variable: Option<(&str, &str)>| {
        let show = "echo $REDLOCK_KEY ${OTHER-none}; redlock=$0; exec $redlock --json inspect k";
        let config = ["--config", path.to_str().unwrap()];
        let run = ["run", "k", "--", "sh", "-c", show, PROGRAM];
        let program = program([&config, options, &run].concat());
        let mut program = program.env("REDLOCK_CONFIG", &path);
        program.0.envs(variable);
        let shown = program.ends(0).out;
        let (line, seen) = shown.split_once('\n').unwrap();
        let seen: Value = serde_json::from_str(seen).unwrap();
        (line.to_owned(), seen)
    };
    let (line, seen) = run(&[], None);
    assert_eq!(line, "file:k none");
    let holder = &seen["holders"][0];
    assert_eq!(holder["client_name"], "web-3");
    assert!(holder["remaining_seconds"].as_f64() <= Some(4.0), "{seen}");
    let variable = ("REDLOCK_PREFIX", "variable:");
    assert_eq!(run(&[], Some(variable)).0, "variable:k none");
    let empty = ("REDLOCK_PREFIX", "");
    assert_eq!(run(&[], Some(empty)).0, "file:k none");
    let option = ["--prefix", "option:"];
    assert_eq!(run(&option, None).0, "option:k none");
    let help = program(["run", "--help"]).env("REDLOCK_CONFIG", &path);
    help.ends(0).says_nothing_of(&bed.servers.urls()[0]);
}

#[test]
fn a_file_that_cannot_be_used_is_refused_and_its_passwords_are_not_shown() {
    let bed = Bed::new();
    let path = bed.path("settings");
    for (bad, expected) in [
        (
            &b"REDLOCK_PREFX=lock:\n"[..],
            "no option has the variable REDLOCK_PREFX",
        ),
        (b"redis://:hunter2@a?b=c\n", "a line is not NAME=VALUE"),
        (
            b"REDLOCK_NODES='redis://:hunter2@a\n",
            "a line is not NAME=VALUE",
        ),
        (
            b"REDLOCK_NODES=redis://:hunter2@a redis://b\n",
            "a line is not NAME=VALUE",
        ),
        (
            b"\nREDLOCK_NODES=hunter2\xff\n",
            "settings: line 2 is not text",
        ),
        (
            b"#\r\n\nREDLOCK_TLS_CA=hunter2\0\n",
            "settings: line 3 is not text",
        ),
        (b"REDLOCK_MAX_TTL=soon\n", "--max-ttl"),
        (
            b"REDLOCK_NODES=redis://:hunter2/x@a\n",
            "must be written as %2F",
        ),
        (b"REDLOCK_CLIENT_NAME=a\n", "use --nodes or --config"),
    ] {
        fs::write(&path, bad).unwrap();
        let refused = program(["nodes"]).env("REDLOCK_CONFIG", &path).ends(64);
        refused.says(expected).says_nothing_of("hunter2");
    }
    let refused = program(["--config", "/no/such/file", "nodes"]).ends(64);
    refused.says("/no/such/file: No such file");
}
