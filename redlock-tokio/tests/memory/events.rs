//! What the crates can log: `OPERATIONS.md` explains all of it, and all of it has one target.

use std::{fs, path::Path};

const PAGE: &str = include_str!("../../OPERATIONS.md");

/// What logs something or opens a span, and the first cell of its row in the page. The driver's own macros, in `src/log.rs`,
/// have the target, and survive a subscriber that panics.
const MACROS: [(&str, &str); 6] = [
    ("error!(", "ERROR"),
    ("warn!(", "WARN"),
    ("info!(", "INFO"),
    ("debug!(", "DEBUG"),
    ("trace!(", "TRACE"),
    ("debug_span!(", "span"),
];

#[test]
fn all_that_is_logged_has_one_target_and_the_page_explains_it() {
    let driver = source("redlock-tokio");
    let layers = ["redlock-core", "redlock-tower", "redlock-axum"].map(source);
    let layers = layers.concat();
    let all = [driver.clone(), layers.clone()].concat();
    for (name, kind) in MACROS {
        let explained: Vec<_> = PAGE.lines().filter_map(|it| text_of(it, kind)).collect();
        for text in &explained {
            assert!(all.contains(text), "no crate logs `{text}`");
        }
        let calls = all.matches(name).count();
        assert_eq!(calls, explained.len(), "rows of {kind} in OPERATIONS.md");
        let own = driver.matches(&format!("log::{name}")).count();
        let driver = driver.matches(name).count();
        assert_eq!(own, driver, "use crate::log for {name}");
        let named = layers
            .matches(&format!("{name}target: \"redlock\","))
            .count();
        assert_eq!(named, layers.matches(name).count(), "target of {name}");
    }
}

/// Returns the text of a row of this kind in the page's tables.
fn text_of<'a>(line: &'a str, kind: &str) -> Option<&'a str> {
    let row = line.strip_prefix(&format!("| {kind} | `"))?;
    row.split("` |").next()
}

/// Returns the code of a crate without comments and white space at the ends of lines, and with each text in one line.
fn source(crate_name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut left, mut code) = (vec![root.join(crate_name).join("src")], String::new());
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(path).unwrap();
            left.extend(entries.map(|it| it.unwrap().path()));
        } else if !path.ends_with("src/log.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().map(str::trim);
            code.extend(lines.filter(|it| !it.starts_with("//")));
        }
    }
    code.replace("\\\"", "\"").replace('\\', "")
}
