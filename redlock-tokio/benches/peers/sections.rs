//! What is measured, one module a question.

mod own_keys;

use std::{env, fs, path::PathBuf, str::FromStr};

use serde::Serialize;
use tokio::runtime::Runtime;

use self::own_keys::OwnKeys;
use crate::{Result, args::Args, machine::Machine};

/// Everything that was measured.
#[derive(Serialize)]
struct Figures {
    machine: Machine,
    own_keys: Option<OwnKeys>,
}

/// A section's name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    OwnKeys,
}

impl Name {
    const ALL: [(&'static str, Self); 1] = [("own-keys", Self::OwnKeys)];
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
