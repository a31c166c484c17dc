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

/// The macros that log something or open a span. Source that uses them writes `tracing::` in front.
const MACROS: [&str; 7] = [
    "trace!(", "debug!(", "info!(", "warn!(", "error!(", "event!(", "span!(",
];

/// One call of such a macro.
#[derive(Debug)]
struct Logged {
    /// Where it is.
    place: String,
    /// The level, or that it is a span.
    kind: String,
    /// What stands between the parentheses.
    arguments: String,
}

impl Logged {
    /// Returns the message of an event, or the name of a span.
    fn name(&self) -> String {
        let texts = texts(&self.arguments);
        let name = match &*self.kind {
            "span" => texts.get(1),
            _ => texts.last(),
        };
        name.unwrap_or_else(|| panic!("{} has no text", self.place))
            .clone()
    }

    /// Returns the beginning of the row of the page that explains it.
    fn row(&self) -> String {
        format!("| {} | `{}` |", self.kind, self.name())
    }

    fn has_target(&self) -> bool {
        self.arguments
            .trim_start()
            .starts_with("target: \"redlock\",")
    }
}

/// Returns what this source logs.
fn find(file: &str, source: &str) -> Vec<Logged> {
    let mut found = Vec::new();
    let mut offset = 0;
    for (number, line) in source.lines().enumerate() {
        let start = offset;
        offset += line.len() + 1;
        if line.trim_start().starts_with("//") {
            continue;
        }
        let mut macros = MACROS.iter();
        let Some((name, end)) = macros.find_map(|it| Some((*it, ends_in_line(line, it)?))) else {
            continue;
        };
        found.push(Logged {
            place: format!("{file}:{}", number + 1),
            kind: match name.trim_end_matches("!(") {
                "span" => "span".to_owned(),
                level => level.to_uppercase(),
            },
            arguments: arguments(&source[start + end..]).to_owned(),
        });
    }
    found
}

/// Returns where the name of the macro and its parenthesis end.
fn ends_in_line(line: &str, name: &str) -> Option<usize> {
    let at = line.find(name)?;
    let before = line[..at].trim_end_matches("debug_");
    // Not `compile_error!(`.
    (!before.ends_with('_')).then_some(at + name.len())
}

/// Returns the text up to the parenthesis that closes the call.
fn arguments(text: &str) -> &str {
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'(' if !in_text => depth += 1,
            b')' if !in_text && depth == 0 => return &text[..at],
            b')' if !in_text => depth -= 1,
            _ => {}
        }
    }
    panic!("the call has no end: {text}");
}

/// Returns the texts between quotation marks, as the compiler reads them.
fn texts(arguments: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = arguments.chars();
    while rest.any(|it| it == '"') {
        let mut text = String::new();
        while let Some(next) = rest.next().filter(|it| *it != '"') {
            match next {
                '\\' => match rest.next() {
                    // The text goes on at the first word of the next line.
                    Some('\n') => rest = rest.as_str().trim_start().chars(),
                    escaped => text.extend(escaped),
                },
                plain => text.push(plain),
            }
        }
        texts.push(text);
    }
    texts
}

/// Returns the beginnings of the rows of the page's tables of what is logged.
fn rows() -> BTreeSet<String> {
    let kinds = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE", "span"];
    let rows = PAGE.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (kind, text) = (cells.next()?, cells.next()?);
        kinds
            .contains(&kind)
            .then(|| format!("| {kind} | {text} |"))
    });
    rows.collect()
}

/// Returns what the four crates log.
fn all() -> Vec<Logged> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for file in CRATES
        .iter()
        .flat_map(|it| sources(&root.join(it).join("src")))
    {
        let source = fs::read_to_string(&file).unwrap();
        found.extend(find(&file.display().to_string(), &source));
    }
    found
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|it| it.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .collect()
}

#[test]
fn all_that_is_logged_has_the_target_redlock() {
    let all = all();
    assert!(all.len() > 40, "{all:#?}");
    let others = all.iter().filter(|it| !it.has_target());
    let places: Vec<_> = others.map(|it| &it.place).collect();
    assert!(places.is_empty(), "{places:#?}");
}

/// A subscriber that panics must not end a task of the driver.
#[test]
fn the_driver_logs_through_a_module_of_its_own() {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in sources(&driver) {
        let source = fs::read_to_string(&file).unwrap();
        let bare = MACROS.map(|it| format!("tracing::{it}"));
        let found = bare.iter().find(|it| source.contains(*it));
        assert_eq!(found, None, "use crate::log in {}", file.display());
    }
}

#[test]
fn the_page_explains_all_that_is_logged_and_nothing_else() {
    let logged: BTreeSet<_> = all().iter().map(Logged::row).collect();
    let explained = rows();
    let missing: Vec<_> = logged.difference(&explained).collect();
    let unknown: Vec<_> = explained.difference(&logged).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "OPERATIONS.md lacks {missing:#?}, and explains {unknown:#?}, which no crate logs"
    );
}

#[test]
fn an_event_that_the_page_lacks_is_found() {
    let source = "tracing::warn!(\n    target: \"redlock\",\n    %node,\n    \"the \\\"node\\\" \\\n     has gone\"\n);";
    let [logged] = &find("lane.rs", source)[..] else {
        panic!("one event");
    };
    assert_eq!(logged.row(), r#"| WARN | `the "node" has gone` |"#);
    assert!(!rows().contains(&logged.row()));
    let span = r#"tracing::debug_span!(target: "redlock", "lock_wait", label = "a")"#;
    let found = find("lane.rs", span);
    assert_eq!(found[0].row(), "| span | `lock_wait` |");
    assert!(rows().contains(&found[0].row()));
}

#[test]
fn an_event_with_another_target_is_found() {
    for source in [
        r#"tracing::warn!(%error, "no (lock)");"#,
        r#"tracing::info!("target: \"redlock\",");"#,
        "use tracing::warn;\nwarn!(\n    target: \"redlocks\",\n    \"..\"\n);",
        r#"let span = tracing::debug_span!("lock_wait");"#,
    ] {
        let found = find("lane.rs", source);
        assert!(matches!(&found[..], [it] if !it.has_target()), "{found:?}");
    }
    let with_target = r#"tracing::debug_span!(target: "redlock", "lock_wait", it = it())"#;
    let found = find("lane.rs", with_target);
    assert!(matches!(&found[..], [it] if it.has_target()), "{found:?}");
}
