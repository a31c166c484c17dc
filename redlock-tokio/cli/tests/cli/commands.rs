//! Completions and the manual pages.

use crate::process::{Bed, program};

#[test]
fn shells_and_man_can_read_what_is_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let script = program(["completions", shell]).ends(0);
        script
            .says("conflict-exit-code")
            .says_nothing_of("guardian");
    }
    let page_of = |arguments: &[&str]| {
        let page = program(arguments).ends(0).out;
        assert!(page.starts_with(".ie") && page.contains(".SH"), "{page}");
        page
    };
    let page = page_of(&["man"]);
    // `redlock\-run(1)`: each page that it refers to is there.
    let others = page.lines().filter_map(|it| it.strip_suffix("(1)"));
    let others = others.filter_map(|it| it.strip_prefix(r"redlock\-"));
    let others: Vec<_> = others.collect();
    assert!(others.contains(&"run") && others.len() > 6, "{others:?}");
    for command in others {
        let title = format!(".TH redlock-{command} 1 ");
        assert!(page_of(&["man", command]).contains(&title), "{command}");
    }
    program(["man", "no-such"]).ends(64);
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_output_that_nobody_reads_ends_the_program() {
    let bed = Bed::new();
    bed.command("SET k theirs PX 600000");
    let written = |arguments: &str, to: &str| {
        let script = format!("{to}; exec \"$@\"");
        bed.redlock(arguments).by(&["bash", "-c", &script, "bash"])
    };
    let unread = "exec > >(:); wait $!";
    for arguments in [
        "list",
        "nodes --watch",
        "inspect k",
        "inspect k --json",
        "unlock k --yes",
        "watch k",
        "--help",
        "--version",
        "help run",
        "man",
        "completions bash",
    ] {
        let ended = written(arguments, "exec > /dev/full").ends(70);
        ended.says("the output cannot be written: No space left on device");
        assert_eq!(written(arguments, unread).ends(141).err, "", "{arguments}");
    }
    // The second one could not show what it would have deleted.
    bed.redlock("inspect k").ends(0).says("held by");
    // A search that waits has nothing to write.
    bed.servers.get(0).freeze();
    let list = written("list --node-timeout 1h", unread).ends(141);
    assert_eq!(list.err, "");
}
