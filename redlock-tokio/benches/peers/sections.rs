//! The measurements, one module for each question.

mod distance;
mod held;
mod own_keys;
mod sickness;
mod waiting;

use std::fmt;

use serde::Deserialize;
use tokio::runtime::Runtime;

pub(crate) use self::held::hold;
use crate::{Result, args::Args};

/// A section's name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Name {
    OwnKeys,
    EvenDistance,
    UnevenDistance,
    Sickness,
    Held,
    Waiting,
}

/// Runs the sections that were asked for, and prints their tables. Returns the failures in words: a section that fails
/// does not keep the others from being measured.
pub(crate) fn run(args: &Args, runtime: &Runtime) -> Vec<String> {
    let quick = args.quick;
    let (guards, seconds) = if quick { (2_000, 3) } else { (100_000, 30) };
    let guards = args.guards.unwrap_or(guards);
    let seconds = args.hold_for.unwrap_or(seconds);
    let mut sections = Sections {
        runtime,
        only: args.only,
        failures: Vec::new(),
    };
    sections.run(Name::OwnKeys, own_keys::measure(quick));
    sections.run(Name::EvenDistance, distance::measure(&[5; 5], quick));
    let uneven = distance::measure(&[1, 1, 1, 20, 20], quick);
    sections.run(Name::UnevenDistance, uneven);
    sections.run(Name::Sickness, sickness::measure(quick));
    let held = async { held::measure(guards, seconds, args.in_memory) };
    sections.run(Name::Held, held);
    let (keys, seconds) = if quick { (1_000, 3) } else { (20_000, 30) };
    sections.run(Name::Waiting, waiting::measure(keys, seconds));
    sections.failures
}

struct Sections<'a> {
    runtime: &'a Runtime,
    only: Option<Name>,
    failures: Vec<String>,
}

impl Sections<'_> {
    fn run<T: fmt::Display>(&mut self, name: Name, measure: impl Future<Output = Result<T>>) {
        if self.only.is_none_or(|only| only == name) {
            match self.runtime.block_on(measure) {
                Ok(section) => println!("{section}"),
                Err(error) => self.failures.push(format!("{name:?}: {error}")),
            }
        }
    }
}
