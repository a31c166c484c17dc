//! Completions and the manual pages.

use crate::process::{code, program, text};

#[test]
fn shells_and_man_can_read_what_is_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let output = program(["completions", shell]).output().unwrap();
        let script = text(&output.stdout);
        assert!(script.contains("conflict-exit-code"), "{shell}");
        assert!(!script.contains("guardian"), "{shell}");
    }
    let page_of = |arguments: &[&str]| {
        let output = program(arguments).output().unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        let page = text(&output.stdout);
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
    assert_eq!(code(&program(["man", "no-such"]).output().unwrap()), 64);
}
