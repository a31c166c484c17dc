//! The measurements, one module for each question.

mod distance;
mod held;
mod own_keys;
mod sickness;
mod waiting;

use std::fmt;

use serde::Deserialize;
use tokio::runtime::Runtime;

pub(crate) use self::{
    held::hold,
    own_keys::{OwnKeys, TASKS},
    sickness::{FAULTS, Sickness},
};
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

/// The figures of the plots, and the sections that failed.
pub(crate) struct Figures {
    pub(crate) own_keys: Option<OwnKeys>,
    pub(crate) sickness: Option<Sickness>,
    /// The sections that failed, and why.
    pub(crate) failures: Vec<String>,
}

/// Runs the sections that were asked for, and prints their tables. One that fails does not keep the
/// others from being measured.
pub(crate) fn run(args: &Args, runtime: &Runtime) -> Figures {
    let quick = args.quick;
    let (guards, seconds) = if quick { (2_000, 3) } else { (100_000, 30) };
    let guards = args.guards.unwrap_or(guards);
    let seconds = args.hold_for.unwrap_or(seconds);
    let mut sections = Sections {
        runtime,
        only: args.only,
        failures: Vec::new(),
    };
    let own_keys = sections.run(Name::OwnKeys, own_keys::measure(quick));
    sections.run(Name::EvenDistance, distance::measure(&[5; 5], quick));
    let uneven = distance::measure(&[1, 1, 1, 20, 20], quick);
    sections.run(Name::UnevenDistance, uneven);
    let sickness = sections.run(Name::Sickness, sickness::measure(quick));
    let held = async { held::measure(guards, seconds, args.in_memory) };
    sections.run(Name::Held, held);
    let (keys, seconds) = if quick { (1_000, 3) } else { (20_000, 30) };
    sections.run(Name::Waiting, waiting::measure(keys, seconds));
    Figures {
        own_keys,
        sickness,
        failures: sections.failures,
    }
}

struct Sections<'a> {
    runtime: &'a Runtime,
    only: Option<Name>,
    failures: Vec<String>,
}

impl Sections<'_> {
    fn run<T: fmt::Display>(
        &mut self,
        name: Name,
        measure: impl Future<Output = Result<T>>,
    ) -> Option<T> {
        if self.only.is_some_and(|only| only != name) {
            return None;
        }
        match self.runtime.block_on(measure) {
            Ok(section) => {
                println!("{section}");
                Some(section)
            }
            Err(error) => {
                self.failures.push(format!("{name:?}: {error}"));
                None
            }
        }
    }
}
