//! The summary: what was simulated, what went wrong on purpose, and what was found.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    clock::{HOUR, SECOND},
    configuration::Configuration,
    seen::{Seen, Tally},
    table,
    violation::Kind,
    world::Outcome,
};

/// The runs of one world, added up.
pub(crate) struct Summary {
    pub(crate) configuration: Configuration,
    seeds: u64,
    /// Of one run of each seed.
    virtual_time: u64,
    pub(crate) seen: Tally,
    /// How many seeds showed a violation.
    pub(crate) violated: u64,
    /// How many seeds showed a violation of each kind.
    pub(crate) kinds: BTreeMap<Kind, u64>,
    example: Option<String>,
}

impl Summary {
    pub(crate) fn new(configuration: Configuration) -> Self {
        Self {
            configuration,
            seeds: 0,
            virtual_time: 0,
            seen: Tally::default(),
            violated: 0,
            kinds: BTreeMap::new(),
            example: None,
        }
    }

    pub(crate) fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.seeds += 1;
        self.virtual_time += outcome.virtual_time;
        self.seen += &outcome.seen;
        let kinds: BTreeSet<_> = outcome.violations.iter().map(|it| it.kind).collect();
        for kind in kinds {
            *self.kinds.entry(kind).or_default() += 1;
        }
        if let Some(violation) = outcome.violations.first() {
            self.violated += 1;
            self.example
                .get_or_insert_with(|| format!("seed {seed}: {violation}"));
        }
    }

    fn virtual_hours(&self) -> f64 {
        (self.virtual_time / SECOND) as f64 / (HOUR / SECOND) as f64
    }
}

/// Adds up what worlds within the assumptions have seen, and what the others have.
pub(crate) fn tallies(summaries: &[Summary]) -> (Tally, Tally) {
    let (mut within, mut beyond) = (Tally::default(), Tally::default());
    for summary in summaries {
        if summary.configuration.is_safe() {
            within += &summary.seen;
        } else {
            beyond += &summary.seen;
        }
    }
    (within, beyond)
}

/// Prints what was simulated, and what was seen.
pub(crate) fn print(summaries: &[Summary]) {
    let columns: &[table::Column<'_, Summary>] = &[
        ("world", &|it| format!("`{}`", it.configuration.name)),
        ("what happens", &|it| it.configuration.about.to_owned()),
        ("seeds", &|it| it.seeds.to_string()),
        ("virtual h", &|it| format!("{:.2}", it.virtual_hours())),
        ("acquired", &|it| it.seen.get(Seen::Acquired).to_string()),
        ("seeds with a violation", &|it| it.violated.to_string()),
    ];
    let table = table::of(summaries, columns);
    println!("\n{table}\n");
    let (within, beyond) = tallies(summaries);
    for group in Seen::GROUPS {
        let columns: &[table::Column<'_, (Seen, &str)>] = &[
            (group.title, &|(_, name)| (*name).to_owned()),
            ("within", &|(what, _)| within.get(*what).to_string()),
            ("beyond, controls", &|(what, _)| {
                beyond.get(*what).to_string()
            }),
        ];
        println!("{}\n", table::of(group.members, columns));
    }
    for it in summaries {
        if let Some(example) = &it.example {
            let Configuration { name, about, .. } = it.configuration;
            let kinds = it.kinds.iter();
            let kinds = kinds.map(|(kind, seeds)| format!("{kind:?} {seeds}"));
            let kinds = kinds.collect::<Vec<_>>().join(", ");
            println!(
                "{name}: {about};\n  seeds by kind of violation: {kinds};\n  such as {example}"
            );
        }
    }
}
