//! Completions and the manual pages.

use crate::process::program;

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
    let to_a_full_disk = ["sh", "-c", "exec \"$@\" > /dev/full", "sh"];
    program(["completions", "bash"])
        .by(&to_a_full_disk)
        .ends(70);
}
