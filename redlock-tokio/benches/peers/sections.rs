//! The measurements, one module for each question.

mod distance;
mod held;
mod name;
mod own_keys;
mod sickness;

use std::fmt;

use serde::Serialize;
use tokio::runtime::Runtime;

use self::{distance::Distance, held::Held};
pub(crate) use self::{
    held::hold,
    name::Name,
    own_keys::{OwnKeys, TASKS},
    sickness::{Fault, Sickness},
};
use crate::{Result, args::Args, machine::Machine};

/// Everything that was measured.
#[derive(Serialize)]
pub(crate) struct Figures {
    pub(crate) machine: Machine,
    pub(crate) own_keys: Option<OwnKeys>,
    even_distance: Option<Distance>,
    uneven_distance: Option<Distance>,
    pub(crate) sickness: Option<Sickness>,
    held: Option<Held>,
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
        only: args.only,
        failures: Vec::new(),
    };
    Figures {
        machine: Machine::look(),
        own_keys: sections.run(Name::OwnKeys, || runtime.block_on(own_keys::measure(quick))),
        even_distance: sections.run(Name::EvenDistance, || {
            runtime.block_on(distance::measure(&[5; 5], quick))
        }),
        uneven_distance: sections.run(Name::UnevenDistance, || {
            runtime.block_on(distance::measure(&[1, 1, 1, 20, 20], quick))
        }),
        sickness: sections.run(Name::Sickness, || {
            runtime.block_on(sickness::measure(quick))
        }),
        held: sections.run(Name::Held, || {
            held::measure(guards, seconds, args.in_memory)
        }),
        failures: sections.failures,
    }
}

struct Sections {
    only: Option<Name>,
    failures: Vec<String>,
}

impl Sections {
    fn run<T: fmt::Display>(
        &mut self,
        name: Name,
        measure: impl FnOnce() -> Result<T>,
    ) -> Option<T> {
        if self.only.is_some_and(|only| only != name) {
            return None;
        }
        match measure() {
            Ok(section) => {
                println!("{section}");
                Some(section)
            }
            Err(error) => {
                self.failures.push(format!("{}: {error}", name.as_str()));
                None
            }
        }
    }
}
