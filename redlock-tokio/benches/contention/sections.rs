//! The measurements, one module for each question.

mod faults;
mod foreign;
mod mixes;
mod one_key;
mod sharing;

use std::time::Duration;

pub(crate) use self::mixes::mix;
use crate::{
    Result,
    args::Args,
    bed::Bed,
    column::Column,
    crew,
    group::Group,
    shared::{contestants::Name, table},
};

/// Where sections measure, and what failed.
struct Sections<'a> {
    bed: &'a Bed,
    time: Duration,
    failures: Vec<String>,
}

/// Runs the sections that were asked for, and prints their tables. Returns the failures in words: a contestant that
/// fails does not keep the others from being measured.
pub(crate) fn run(args: &Args) -> Result<Vec<String>> {
    const CONTROL: Duration = Duration::from_millis(200);
    let bed = Bed::new(args.distance)?;
    let without = Group::ours(4, 2).of(Name::NoLock);
    if let (_, Some(complaint)) = bed.measure(&[without], CONTROL)? {
        return Err(complaint.into());
    }
    println!("Without a lock holds overlap, as they must.\n");
    let mut sections = Sections {
        bed: &bed,
        time: args.time,
        failures: Vec::new(),
    };
    if args.faults {
        faults::measure(&mut sections)?;
    } else if args.sharing {
        sharing::measure(&mut sections);
    } else if !args.mixes.is_empty() {
        mixes::measure(&mut sections, &args.mixes);
    } else {
        one_key::measure(&mut sections);
        foreign::measure(&mut sections)?;
    }
    Ok(sections.failures)
}

impl Sections<'_> {
    /// Measures some groups beside each other, then others, and prints a table of all.
    fn table(
        &mut self,
        title: &str,
        cells: impl IntoIterator<Item = Vec<Group>>,
        columns: &[Column],
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
            match self.bed.measure(&groups, self.time) {
                Ok((measured, complaint)) => {
                    rows.extend(measured);
                    let complaint = complaint.map(|it| format!("{who}: {it}"));
                    self.failures.extend(complaint);
                }
                Err(error) => self.failures.push(format!("{who}: {error}")),
            }
        }
        println!("### {title}\n\n{}\n", table::of(&rows, columns));
    }
}
