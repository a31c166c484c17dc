//! The summary: what was simulated, what went wrong on purpose, and what was found.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

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
    /// How often each seed was run. The time and the events of each run count.
    runs: u64,
    virtual_time: u64,
    events: u64,
    pub(crate) seen: Tally,
    /// How many seeds showed a violation.
    pub(crate) violated: u64,
    /// How many seeds showed a violation of each kind.
    pub(crate) kinds: BTreeMap<Kind, u64>,
    example: Option<String>,
    /// How long its runs took, added up.
    real_time: Duration,
}

impl Summary {
    pub(crate) fn new(configuration: Configuration, runs: u32) -> Self {
        Self {
            configuration,
            seeds: 0,
            runs: u64::from(runs),
            virtual_time: 0,
            events: 0,
            seen: Tally::default(),
            violated: 0,
            kinds: BTreeMap::new(),
            example: None,
            real_time: Duration::ZERO,
        }
    }

    pub(crate) fn add(&mut self, seed: u64, outcome: &Outcome, took: Duration) {
        self.seeds += 1;
        self.real_time += took;
        self.virtual_time += self.runs * outcome.virtual_time;
        self.events += self.runs * outcome.events;
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

    /// Returns how many virtual hours one thread simulated in a second.
    fn speed(&self) -> f64 {
        self.virtual_hours() / self.real_time.as_secs_f64().max(1e-9)
    }
}

fn print_total(summaries: &[Summary]) {
    let hours = |of: &[&Summary]| of.iter().map(|it| it.virtual_hours()).sum::<f64>();
    let (within, beyond): (Vec<_>, Vec<_>) =
        summaries.iter().partition(|it| it.configuration.is_safe());
    let seconds: f64 = summaries.iter().map(|it| it.real_time.as_secs_f64()).sum();
    let (of_within, of_beyond) = (hours(&within), hours(&beyond));
    let violated: u64 = within.iter().map(|it| it.violated).sum();
    println!(
        "{of_within:.1} virtual hours within the assumptions, with {violated} violations; {of_beyond:.1} beyond them; \
         in {seconds:.0} s of a thread: {:.3} virtual hours a second\n",
        (of_within + of_beyond) / seconds.max(1e-9)
    );
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
        ("events", &|it| it.events.to_string()),
        ("seeds with a violation", &|it| it.violated.to_string()),
        ("virtual h a second", &|it| format!("{:.3}", it.speed())),
    ];
    let table = table::of(summaries, columns);
    println!("\n{table}\n");
    print_total(summaries);
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
            let kinds = kinds.map(|(kind, seeds)| format!("{kind} {seeds}"));
            let kinds = kinds.collect::<Vec<_>>().join(", ");
            println!(
                "{name}: {about};\n  seeds by kind of violation: {kinds};\n  such as {example}"
            );
        }
    }
}
