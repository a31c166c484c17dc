use crate::{Result, sections::Name};

/// The options of the command line.
#[derive(Debug)]
pub(crate) struct Args {
    /// Shorter measurements, to see that everything works. Not for figures.
    pub(crate) quick: bool,
    /// The only section to run.
    pub(crate) only: Option<Name>,
    /// How many guards to hold at once, and for how many seconds.
    pub(crate) guards: Option<usize>,
    pub(crate) hold_for: Option<u64>,
    /// Whether to hold them over nodes in the memory of the holder.
    pub(crate) in_memory: bool,
    /// Makes this process the holder of another one's guards.
    pub(crate) hold: Option<String>,
}

impl Args {
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut args = args.into_iter();
        let mut parsed = Self {
            quick: false,
            only: None,
            guards: None,
            hold_for: None,
            in_memory: false,
            hold: None,
        };
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or(format!("{flag} wants a value"));
            match flag.as_str() {
                "--bench" => {}
                "--quick" => parsed.quick = true,
                "--only" => parsed.only = Some(serde_json::from_value(value()?.into())?),
                "--held" => parsed.guards = Some(value()?.parse()?),
                "--held-for" => parsed.hold_for = Some(value()?.parse()?),
                "--in-memory" => parsed.in_memory = true,
                "--hold" => parsed.hold = Some(value()?),
                _ => return Err(format!("{flag} is not known; {USAGE}").into()),
            }
        }
        Ok(parsed)
    }
}

const USAGE: &str = "use --quick, --only SECTION, --held GUARDS, --held-for SECONDS, --in-memory";
