use std::path::PathBuf;

use crate::{Result, sections::Name};

/// What the command line asks for.
#[derive(Debug)]
pub(crate) struct Args {
    /// Shorter measurements, to see that everything works. Not for figures.
    pub(crate) quick: bool,
    /// Where the figures go; `peers.json` in the target directory if not given.
    pub(crate) json: Option<PathBuf>,
    /// The only section to run.
    pub(crate) only: Option<Name>,
}

impl Args {
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut args = args.into_iter();
        let mut parsed = Self {
            quick: false,
            json: None,
            only: None,
        };
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or(format!("{flag} wants a value"));
            match flag.as_str() {
                "--bench" => {}
                "--quick" => parsed.quick = true,
                "--json" => parsed.json = Some(value()?.into()),
                "--only" => parsed.only = Some(value()?.parse()?),
                _ => return Err(format!("{flag} is not known; {USAGE}").into()),
            }
        }
        Ok(parsed)
    }
}

const USAGE: &str = "use --quick, --json PATH, --only SECTION";
