//! The measurements, one module for each question.

mod column;
mod far;
mod faults;
mod foreign;
mod held;
mod mixes;
mod one_key;
mod own_keys;
mod sharing;
mod sick;
mod waiting;

use std::time::Duration;

pub(crate) use self::mixes::mix;
use crate::{
    Result,
    args::Args,
    bed::Bed,
    contestants::{Access, Name},
    crew,
    group::{Group, Row},
    table::{self, Column},
};

/// Prints the tables that answer a question.
type Section = fn(&mut Bench) -> Result<()>;

/// Each with its name on the command line. Held guards are weighed first, in a process that has done nothing yet.
const SECTIONS: [(&str, Section); 10] = [
    ("held", held::measure),
    ("own-keys", own_keys::measure),
    ("one-key", one_key::measure),
    ("foreign", foreign::measure),
    ("mixes", mixes::measure),
    ("faults", faults::measure),
    ("sharing", sharing::measure),
    ("far", far::measure),
    ("sick", sick::measure),
    ("waiting", waiting::measure),
];

/// What sections measure with, and what has failed.
struct Bench {
    /// How long each cell is measured.
    time: Duration,
    rows: String,
    mixes: Vec<Vec<Group>>,
    distance: Duration,
    failures: Vec<String>,
}

/// Runs the sections that were asked for, and prints their tables. Returns the failures in words: a contestant that
/// fails does not keep the others from being measured.
pub(crate) fn run(args: &Args) -> Result<Vec<String>> {
    let is_known = |only: &&String| SECTIONS.iter().any(|(name, _)| name == only);
    if let Some(section) = args.only.iter().find(|only| !is_known(only)) {
        return Err(format!("{section} is no section").into());
    }
    let mut bench = Bench {
        time: args.time,
        rows: args.rows.clone(),
        mixes: args.mixes.clone(),
        distance: args.distance,
        failures: Vec::new(),
    };
    for (name, section) in SECTIONS {
        if (args.only.is_empty() || args.only.iter().any(|it| it == name))
            && let Err(error) = section(&mut bench)
        {
            bench.failures.push(format!("{name}: {error}"));
        }
    }
    notice_clashes()?;
    Ok(bench.failures)
}

/// Fails if too many are in at once without a lock, and nobody notices.
fn notice_clashes() -> Result<()> {
    const TIME: Duration = Duration::from_millis(200);
    let bed = Bed::near()?;
    let without = Group::ours(4, 2).of(Name::NoLock);
    let read_and_write = [Access::Read, Access::Write].map(|it| without.wants(it));
    let permits = without.wants(Access::Permit(4));
    for groups in [&[without][..], &[permits], &read_and_write] {
        if bed.measure(groups, TIME)?.clashes == 0 {
            return Err(format!("no clash was seen without a lock: {groups:?}").into());
        }
    }
    Ok(())
}

impl Bench {
    /// Measures some groups beside each other, then others, and prints a table of all.
    fn table(
        &mut self,
        bed: &Bed,
        title: &str,
        cells: impl IntoIterator<Item = Vec<Group>>,
        columns: &[Column<'_, Row>],
    ) {
        let mut rows = Vec::new();
        for groups in cells {
            let who: Vec<_> = groups.iter().map(Group::to_string).collect();
            let who = who.join(", ");
            let mut programs = groups.iter().map(|it| crew::program(it.contestant));
            if let Some(Err(error)) = programs.find(Result::is_err) {
                println!("NOT RUN: {who}: {error}\n");
                continue;
            }
            match bed.measure(&groups, self.time) {
                Ok(outcome) => {
                    let complaint = outcome.complaint().map(|it| format!("{who}: {it}"));
                    self.failures.extend(complaint);
                    rows.extend(outcome.rows);
                }
                Err(error) => self.failures.push(format!("{who}: {error}")),
            }
        }
        println!("## {title}\n\n{}\n", table::of(&rows, columns));
    }
}
