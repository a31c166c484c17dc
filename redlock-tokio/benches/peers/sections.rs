//! What is measured, one module a question.

mod distance;
mod held;
mod nodes;
mod own_keys;
mod sickness;
mod thrift;

use std::{fmt, str::FromStr};

use serde::Serialize;
use tokio::runtime::Runtime;

use self::{distance::Distance, held::Held, nodes::Nodes, thrift::Thrift};
pub(crate) use self::{
    held::hold,
    own_keys::{OwnKeys, TASKS},
    sickness::{Fault, Sickness},
};
use crate::{Result, args::Args, machine::Machine};

/// Everything that was measured.
#[derive(Serialize)]
pub(crate) struct Figures {
    pub(crate) machine: Machine,
    pub(crate) own_keys: Option<OwnKeys>,
    nodes: Option<Nodes>,
    even_distance: Option<Distance>,
    uneven_distance: Option<Distance>,
    pub(crate) sickness: Option<Sickness>,
    held: Option<Held>,
    thrift: Option<Thrift>,
    /// The sections that failed, and why.
    pub(crate) failures: Vec<String>,
}

/// A section's name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    OwnKeys,
    Nodes,
    EvenDistance,
    UnevenDistance,
    Sickness,
    Held,
    Thrift,
}

impl Name {
    const ALL: [Self; 7] = [
        Self::OwnKeys,
        Self::Nodes,
        Self::EvenDistance,
        Self::UnevenDistance,
        Self::Sickness,
        Self::Held,
        Self::Thrift,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::OwnKeys => "own-keys",
            Self::Nodes => "nodes",
            Self::EvenDistance => "even-distance",
            Self::UnevenDistance => "uneven-distance",
            Self::Sickness => "sickness",
            Self::Held => "held",
            Self::Thrift => "thrift",
        }
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let section = Self::ALL.into_iter().find(|it| it.as_str() == text);
        section.ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("there is no section {text}; there are {names}")
        })
    }
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
        nodes: sections.run(Name::Nodes, || runtime.block_on(nodes::measure(quick))),
        even_distance: sections.run(Name::EvenDistance, || {
            runtime.block_on(distance::measure(&[5; 5], quick))
        }),
        uneven_distance: sections.run(Name::UnevenDistance, || {
            runtime.block_on(distance::measure(&[1, 1, 1, 20, 20], quick))
        }),
        sickness: sections.run(Name::Sickness, || {
            runtime.block_on(sickness::measure(quick))
        }),
        held: sections.run(Name::Held, || held::measure(guards, seconds)),
        thrift: sections.run(Name::Thrift, || thrift::measure(quick)),
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
