//! The files and tests that `FAULTS.md` names exist, and it names each test that has the number of a row.

use std::{fs, path::Path, process::Command};

const PAGE: &str = include_str!("../../../FAULTS.md");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the cells of each row of the table.
fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").collect())
}

/// Returns the names in backticks, each with the word before it.
fn names(cell: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let parts: Vec<_> = cell.split('`').collect();
    let pairs = parts.chunks_exact(2);
    let pairs: Vec<_> = pairs
        .map(|it| (it[0].trim_matches([',', ' ']), it[1]))
        .collect();
    pairs.into_iter()
}

fn is_a_source(crate_of: &str, file: &str) -> bool {
    let folders = match crate_of {
        "core" => &["../redlock-core/src"][..],
        _ => &["src", "src/engine"],
    };
    folders
        .iter()
        .any(|it| root().join(it).join(file).is_file())
}

/// Most tests are in a folder of those that start servers.
fn is_a_test(test: &str) -> bool {
    let (file, name) = test.rsplit_once("::").expect("folder::file::name");
    ["tests", "tests/servers"].iter().any(|folder| {
        let path = root().join(folder).join(file.replace("::", "/"));
        let text = fs::read_to_string(path.with_extension("rs")).unwrap_or_default();
        text.contains(&format!("fn {name}("))
    })
}

#[test]
fn each_fault_names_files_and_tests_that_exist() {
    let rows: Vec<_> = rows().collect();
    assert!(rows.len() > 40, "{} rows", rows.len());
    for cells in rows {
        let [number, _, _, files, tests] = cells[..] else {
            panic!("{cells:?}");
        };
        for (crate_of, file) in names(files) {
            assert!(
                is_a_source(crate_of, file),
                "row {number}: no file {crate_of} {file}"
            );
        }
        assert!(names(tests).count() > 0, "row {number}: no test");
        for (_, test) in names(tests) {
            assert!(is_a_test(test), "row {number}: no test {test}");
        }
    }
    assert!(is_a_source("", "hold.rs") && !is_a_source("", "no_such_file.rs"));
    assert!(!is_a_source("core", "hold.rs") && !is_a_test("servers::wire::no_such_test"));
}

/// This program names its tests, and each that has the number of a row must be in that row.
#[test]
fn each_test_of_a_fault_is_in_its_row() {
    let program = std::env::current_exe().unwrap();
    let list = Command::new(program).arg("--list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let tests = list.lines().filter_map(|it| it.strip_suffix(": test"));
    let numbered = tests.filter_map(|it| Some((it, it.split_once("::row_")?.1.get(..2)?)));
    let rows: Vec<_> = rows().collect();
    let is_there = |(test, number): &(&str, &str)| {
        let number = number.trim_start_matches('0');
        let mut named = rows.iter().filter(|it| it[0].trim() == number);
        named.any(|it| it[4].contains(&format!("{test}`")))
    };
    let (known, missing): (Vec<_>, Vec<_>) = numbered.partition(is_there);
    assert!(known.len() > 40, "{} tests", known.len());
    assert!(missing.is_empty(), "FAULTS.md lacks {missing:#?}");
}
