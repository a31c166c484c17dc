//! What is measured, one module a question.

mod distance;
mod held;
mod own_keys;
mod sickness;

use std::{env, fs, path::PathBuf, str::FromStr};

use serde::Serialize;
use tokio::runtime::Runtime;

pub(crate) use self::held::hold;
use self::{distance::Distance, held::Held, own_keys::OwnKeys, sickness::Sickness};
use crate::{Result, args::Args, machine::Machine};

/// Everything that was measured.
#[derive(Serialize)]
struct Figures {
    machine: Machine,
    own_keys: Option<OwnKeys>,
    even_distance: Option<Distance>,
    uneven_distance: Option<Distance>,
    sickness: Option<Sickness>,
    held: Option<Held>,
}

/// A section's name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    OwnKeys,
    EvenDistance,
    UnevenDistance,
    Sickness,
    Held,
}

impl Name {
    const ALL: [(&'static str, Self); 5] = [
        ("own-keys", Self::OwnKeys),
        ("even-distance", Self::EvenDistance),
        ("uneven-distance", Self::UnevenDistance),
        ("sickness", Self::Sickness),
        ("held", Self::Held),
    ];
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(|(name, _)| name).join(", ");
        Self::ALL
            .into_iter()
            .find_map(|(name, section)| (name == text).then_some(section))
            .ok_or(format!("there is no section {text}; there are {names}"))
    }
}

/// Runs the sections that were asked for, prints their tables and writes the figures.
pub(crate) fn run(args: &Args, runtime: &Runtime) -> Result<()> {
    let wanted = |name| args.only.is_none_or(|only| only == name);
    let mut figures = Figures {
        machine: Machine::look(),
        own_keys: None,
        even_distance: None,
        uneven_distance: None,
        sickness: None,
        held: None,
    };
    let Machine {
        cores,
        redis,
        commit,
        profile,
        ..
    } = &figures.machine;
    println!("{cores} cores, Redis {redis}, commit {commit}, {profile}\n");
    if wanted(Name::OwnKeys) {
        let section = runtime.block_on(own_keys::measure(args.quick))?;
        println!("{section}");
        figures.own_keys = Some(section);
    }
    if wanted(Name::EvenDistance) {
        let section = runtime.block_on(distance::measure(&[5; 5], args.quick))?;
        println!("{section}");
        figures.even_distance = Some(section);
    }
    if wanted(Name::UnevenDistance) {
        let section = runtime.block_on(distance::measure(&[1, 1, 1, 20, 20], args.quick))?;
        println!("{section}");
        figures.uneven_distance = Some(section);
    }
    if wanted(Name::Sickness) {
        let section = runtime.block_on(sickness::measure(args.quick))?;
        println!("{section}");
        figures.sickness = Some(section);
    }
    if wanted(Name::Held) {
        let (guards, seconds) = if args.quick {
            (2_000, 3)
        } else {
            (100_000, 30)
        };
        let section = held::measure(
            args.guards.unwrap_or(guards),
            args.hold_for.unwrap_or(seconds),
        )?;
        println!("{section}");
        figures.held = Some(section);
    }
    let path = args.json.clone().map_or_else(default_path, Ok)?;
    fs::write(&path, serde_json::to_string_pretty(&figures)?)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    println!("all figures: {}", path.display());
    Ok(())
}

/// `peers.json` in the target directory, in which this program is `release/deps/peers-..`.
fn default_path() -> Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(3);
    Ok(target.ok_or("no target directory")?.join("peers.json"))
}
