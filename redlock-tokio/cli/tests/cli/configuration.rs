//! The program has the configuration of a service.

use std::{fs, time::Duration};

use redlock_kit::{Cluster, Sentinels};
use redlock_tokio::{Durability, Redlock};
use serde_json::Value;

use crate::process::{Bed, PROGRAM, code, program, text, wait_for};

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
        let redlock = |arguments: &[&str]| {
            let mut command = program(arguments);
            command.env("REDLOCK_DURABILITY", "lossless-failovers");
            command.env("REDLOCK_NODES", &list).output().unwrap()
        };
        // A busy machine may need several looks to confirm the owners of the slots.
        wait_for("the holder", || {
            let output = redlock(&["inspect", &key, "--json"]);
            let seen: Value = serde_json::from_slice(&output.stdout).ok()?;
            (seen["holders"][0]["client_name"] == "web-3").then_some(())
        });
        let refusal = wait_for("the refusal", || {
            let output = redlock(&["run", "-w", "500ms", &key, "--", "true"]);
            (code(&output) == 75).then(|| text(&output.stderr))
        });
        assert!(refusal.contains("held by web-3"), "{refusal}");
        guard.release().await;
        let output = redlock(&["run", "-w", "20s", &key, "--", "echo", "locked"]);
        assert_eq!(text(&output.stdout), "locked\n", "{}", text(&output.stderr));
        wait_for("what a free lock depends on", || {
            let output = redlock(&["inspect", &key]);
            let said = text(&output.stderr);
            said.contains("other voters or tags").then_some(())
        });
    }
}

#[test]
fn the_window_of_a_sentinel_group_is_that_of_the_services() {
    let group = Sentinels::spawn().unwrap();
    let run = |window: &str| {
        let mut command = program([
            "run", "-w", "20s", "--ttl", "3s", "k", "--", "echo", "locked",
        ]);
        command.env("REDLOCK_DURABILITY", "lossless-failovers");
        command.env("REDLOCK_CONFIRMATION_WINDOW", window);
        command.env("REDLOCK_NODES", group.url()).output().unwrap()
    };
    let output = run("3s");
    let refusal = text(&output.stderr);
    assert_eq!(code(&output), 64, "{refusal}");
    assert!(refusal.contains("--confirmation-window"), "{refusal}");
    assert!(!refusal.contains("Redlock::builder"), "{refusal}");
    let output = run("1s");
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "locked\n");
}

#[test]
fn a_server_that_says_less_votes_only_if_that_is_allowed() {
    let bed = Bed::new();
    bed.command("ACL SETUSER default -info");
    let run = |options: &str, variable: &str| {
        let mut command = bed.run(options, "true");
        command.env("REDLOCK_ALLOW_UNVETTED_NODES", variable);
        code(&command.output().unwrap())
    };
    assert_eq!(run("-n", "no"), 69);
    assert_eq!(run("-n", "yes"), 0);
    assert_eq!(run("-n --allow-unvetted-nodes", "no"), 0);
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
        let mut command = program([&["--config", path.to_str().unwrap()], options].concat());
        command.args(["run", "k", "--", "sh", "-c", show, PROGRAM]);
        let command = command.envs(variable).env("REDLOCK_CONFIG", &path);
        let output = command.output().unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        let shown = text(&output.stdout);
        let (line, seen) = shown.split_once('\n').unwrap();
        (
            line.to_owned(),
            serde_json::from_str::<Value>(seen).unwrap(),
        )
    };
    let (line, seen) = run(&[], None);
    assert_eq!(line, "file:k none");
    let holder = &seen["holders"][0];
    assert_eq!(holder["client_name"], "web-3");
    assert!(holder["remaining_seconds"].as_f64() <= Some(4.0), "{seen}");
    let variable = ("REDLOCK_PREFIX", "variable:");
    assert_eq!(run(&[], Some(variable)).0, "variable:k none");
    let option = ["--prefix", "option:"];
    assert_eq!(run(&option, None).0, "option:k none");
    let mut help = program(["run", "--help"]);
    let help = help.env("REDLOCK_CONFIG", &path).output().unwrap();
    assert!(!text(&help.stdout).contains(bed.servers.urls()[0].as_str()));
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
        (b"REDLOCK_NODES=\xff\n", "valid UTF-8"),
        (b"REDLOCK_MAX_TTL=soon\n", "--max-ttl"),
        (
            b"REDLOCK_NODES=redis://:hunter2/x@a\n",
            "must be written as %2F",
        ),
        (b"REDLOCK_CLIENT_NAME=a\n", "use --nodes or --config"),
    ] {
        fs::write(&path, bad).unwrap();
        let mut command = program(["nodes"]);
        let output = command.env("REDLOCK_CONFIG", &path).output().unwrap();
        let refusal = text(&output.stderr);
        assert_eq!(code(&output), 64, "{refusal}");
        assert!(refusal.contains(expected), "{refusal}");
        assert!(!refusal.contains("hunter2"), "{refusal}");
    }
    let output = program(["--config", "/no/such/file", "nodes"]).output();
    let refusal = text(&output.unwrap().stderr);
    assert!(refusal.contains("/no/such/file: No such file"), "{refusal}");
}
