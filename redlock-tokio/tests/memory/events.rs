//! What the crates can log, as their source says it: all of it has one target, and `OPERATIONS.md` explains it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const PAGE: &str = include_str!("../../OPERATIONS.md");

const CRATES: [&str; 4] = [
    "redlock-core",
    "redlock-tokio",
    "redlock-tower",
    "redlock-axum",
];

/// The macros that log something or open a span, as source names them, and the first cell of their rows in the page. The
/// driver's own, in `src/log.rs`, have the target.
const MACROS: [(&str, &str); 10] = [
    ("log::error!(", "ERROR"),
    ("log::warn!(", "WARN"),
    ("log::info!(", "INFO"),
    ("log::debug!(", "DEBUG"),
    ("tracing::error!(", "ERROR"),
    ("tracing::warn!(", "WARN"),
    ("tracing::info!(", "INFO"),
    ("tracing::debug!(", "DEBUG"),
    ("tracing::trace!(", "TRACE"),
    ("debug_span!(", "span"),
];

/// Returns the beginning of the row for each call in some source, and whether the call has the target.
fn logged(source: &str) -> Vec<(String, bool)> {
    let lines = source.lines().map(str::trim);
    let code: String = lines.filter(|it| !it.starts_with("//")).collect();
    // A text that goes on in the next line, and quotation marks within a text.
    let code = code.replace("\\\"", "\u{1}").replace('\\', "");
    let calls = MACROS
        .iter()
        .flat_map(|(name, kind)| code.split(name).skip(1).map(move |it| (name, kind, it)));
    let rows = calls.map(|(name, kind, arguments)| {
        let named = arguments.strip_prefix("target: \"redlock\",");
        let arguments = named.unwrap_or(arguments);
        // The message is the last text of an event, and the name the first one of a span.
        let text = match *kind {
            "span" => arguments.split('"').nth(1),
            _ => {
                let ends = ["\");", "\"),_ =>", "\")}"];
                let end = ends.iter().filter_map(|it| arguments.find(it)).min();
                arguments[..end.unwrap_or(0)].rsplit('"').next()
            }
        };
        let text = text.expect("a text").replace('\u{1}', "\"");
        let has_target = named.is_some() || name.starts_with("log::");
        (format!("| {kind} | `{text}` |"), has_target)
    });
    rows.collect()
}

/// Returns the beginnings of the rows of the page's tables of what is logged.
fn rows() -> BTreeSet<String> {
    let rows = PAGE.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (kind, text) = (cells.next()?, cells.next()?);
        let is_logged = MACROS.iter().any(|(_, it)| *it == kind);
        is_logged.then(|| format!("| {kind} | {text} |"))
    });
    rows.collect()
}

/// Returns the text of each file in a folder of the workspace.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut left, mut files) = (vec![root.join(folder)], Vec::new());
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(path).unwrap();
            left.extend(entries.map(|it| it.unwrap().path()));
        } else {
            let text = fs::read_to_string(&path).unwrap();
            files.push((path, text));
        }
    }
    files
}

#[test]
fn all_that_is_logged_has_one_target_and_the_page_explains_it() {
    let mut found = BTreeSet::new();
    for (file, text) in CRATES.iter().flat_map(|it| sources(&format!("{it}/src"))) {
        for (row, has_target) in logged(&text) {
            assert!(has_target, "{}: {row}", file.display());
            found.insert(row);
        }
    }
    let explained = rows();
    let missing: Vec<_> = found.difference(&explained).collect();
    let unknown: Vec<_> = explained.difference(&found).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "OPERATIONS.md lacks {missing:#?}, and explains {unknown:#?}, which no crate logs"
    );
}

/// A subscriber that panics must not end a task of the driver. The macros have their paths, by which they are found here.
#[test]
fn the_driver_logs_through_a_module_of_its_own_and_macros_have_their_paths() {
    for (file, text) in CRATES.iter().flat_map(|it| sources(&format!("{it}/src"))) {
        let bare = [" error!(", " warn!(", " info!(", " debug!(", " trace!("];
        let bare = bare.iter().find(|it| text.contains(**it));
        assert_eq!(bare, None, "{}", file.display());
    }
    for (file, text) in sources("redlock-tokio/src") {
        let mut macros = MACROS.iter().filter(|(it, _)| it.starts_with("tracing::"));
        let bare = macros.find(|(it, _)| text.contains(it));
        assert_eq!(bare, None, "use crate::log in {}", file.display());
    }
}

#[test]
fn an_event_without_a_row_or_a_target_is_found() {
    let source = "tracing::warn!(\n    target: \"redlock\",\n    %node,\n    \"the \\\"node\\\" \\\n     has gone\"\n);";
    let row = r#"| WARN | `the "node" has gone` |"#;
    assert_eq!(logged(source), [(row.to_owned(), true)]);
    assert!(!rows().contains(row));
    let span = r#"tracing::debug_span!(target: "redlock", "lock_wait", label = "a")"#;
    let row = "| span | `lock_wait` |";
    assert_eq!(logged(span), [(row.to_owned(), true)]);
    assert!(rows().contains(row));
    for source in [
        r#"tracing::warn!(%error, "no (lock)");"#,
        "tracing::warn!(\n    target: \"redlocks\",\n    \"..\"\n);",
        r#"let span = tracing::debug_span!("lock_wait");"#,
    ] {
        let found = logged(source);
        assert!(matches!(found[..], [(_, false)]), "{found:?}");
    }
}
