//! Sentinel groups and clusters, completions and the manual page.

use redlock_tokio::test_util::{Cluster, Sentinels};

use crate::process::{code, program, text};

#[test]
fn a_sentinel_group_and_a_cluster_are_nodes_too() {
    let group = Sentinels::spawn().unwrap();
    let mut command = program(["run", "-w", "20s", "k", "--", "echo", "locked"]);
    command.env("REDLOCK_DURABILITY", "lossless-failovers");
    let output = command.env("REDLOCK_NODES", group.url()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    drop(group);

    let cluster = Cluster::spawn().unwrap();
    let mut command = program(["run", "-w", "20s", "k", "--", "echo", "locked"]);
    command.env("REDLOCK_DURABILITY", "lossless-failovers");
    let seeds = cluster.urls().join(",");
    let output = command.env("REDLOCK_CLUSTER", seeds).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "locked\n");
}

#[test]
fn shells_and_man_can_read_what_is_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let output = program(["completions", shell]).output().unwrap();
        let script = text(&output.stdout);
        assert!(
            script.contains("conflict-exit-code") && !script.contains("guardian"),
            "{shell}"
        );
    }
    let output = program(["man"]).output().unwrap();
    let page = text(&output.stdout);
    assert!(page.starts_with(".ie") && page.contains(".SH"), "{page}");
}
