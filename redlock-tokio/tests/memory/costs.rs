//! The page has the costs that `make cost COST=--renew` has counted.

use std::collections::BTreeMap;

use serde_json::Value;

const PAGE: &str = include_str!("../../PERFORMANCE.md");
const COUNTED: &str = include_str!("../../../redlock-axum/benches/cost.json");

/// Returns the cells of the page's row with this name, without the commas in numbers.
fn row(name: &str) -> Vec<String> {
    let rows = PAGE.lines().map(|it| it.split('|').map(str::trim));
    let mut cells = rows.map(|it| it.map(|cell| cell.replace(',', "")).collect::<Vec<_>>());
    let name = name.replace(',', "");
    cells
        .find(|it| it.get(1) == Some(&name))
        .unwrap_or_default()
}

#[test]
fn the_page_has_the_costs_that_were_counted() {
    let counted: BTreeMap<String, Value> = serde_json::from_str(COUNTED).unwrap();
    assert!(counted.len() > 10, "{counted:?}");
    for (name, cost) in counted {
        let instructions = format!("{:.0}", cost["instructions"].as_f64().unwrap());
        let allocations = format!("{:.1}", cost["allocations"].as_f64().unwrap());
        let row = row(&name);
        let is_there = row.contains(&instructions) && row.contains(&allocations);
        assert!(
            is_there,
            "PERFORMANCE.md: {name} | {instructions} | {allocations}: {row:?}"
        );
    }
    assert!(row("a lock over no server").is_empty());
}
