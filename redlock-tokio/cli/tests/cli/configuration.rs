//! The program has the configuration of a service.

use std::{fs, time::Duration};

use redlock_tokio::{
    Durability, Redlock,
    test_util::{Cluster, Sentinels},
};
use serde_json::Value;

use crate::process::{Bed, code, program, text, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn the_program_and_a_service_with_one_list_exclude_each_other_over_a_cluster() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::builder().replicas(0).spawn().unwrap());
    let cluster = cluster.await.unwrap();
    let seeds = cluster.urls().join(",").replace("redis://", "");
    for parameters in ["", "?voters=1", "?tags=a,b,c"] {
        let list = format!("redis+cluster://{seeds}{parameters}");
        let builder = Redlock::builder().node_list(&list).client_label("web-3");
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
            (seen["holders"][0]["label"] == "web-3").then_some(())
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
fn a_file_of_nodes_has_comments_and_quotes_and_its_bad_lines_are_named_by_number() {
    let bed = Bed::new();
    let path = bed.path("nodes");
    let nodes = |text: &[u8]| {
        fs::write(&path, text).unwrap();
        let mut command = program(["nodes"]);
        command.env("REDLOCK_NODES_FILE", &path).output().unwrap()
    };
    let [a, b, c] = <[String; 3]>::try_from(bed.servers.urls()).unwrap();
    let fine = format!("\u{feff}# ours\r\n\"{a}\" # the first\r\n{b}, '{c}'\r\n");
    let output = nodes(fine.as_bytes());
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 3);
    for (bad, expected) in [
        (
            &b"# ours\nredis://a\nb:1\n"[..],
            "line 3: the scheme is missing",
        ),
        (
            b"redis://a,redis://b\n\nredis://:hunter2/x@c",
            "line 3: in a user or a password, a `/` must be written as %2F",
        ),
        (
            b"redis+cluster://a\nredis://:hunter2#x@c",
            "line 2: a `#` must be written as %23",
        ),
        (b"redis://a:port", "line 1: "),
        (b"# redis://a\n", "no nodes given"),
        (b"redis://\xff", "it is not text in UTF-8"),
    ] {
        let output = nodes(bad);
        let refusal = text(&output.stderr);
        assert_eq!(code(&output), 64, "{refusal}");
        let place = format!("redlock: {}", path.display());
        assert!(
            refusal.starts_with(&place) && refusal.contains(expected),
            "{refusal}"
        );
        assert!(!refusal.contains("hunter2"), "{refusal}");
    }
}
