use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ColorChoice, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Locks over independent Redis masters, from the command line.
///
/// The nodes are those of the services that share the locks: the same list everywhere.
#[derive(Debug, Parser)]
#[command(name = "redlock", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 64 wrong arguments, 65 not a lock, 69 no quorum, \
    70 an error of the system, 75 somebody else has the lock, \
    76 the lock was lost, 126 and 127 the command could not be started, 128+n ended by signal n. \
    `run` and `elect` return the code of their command otherwise."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Write JSON for scripts.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which nodes, and how.
#[derive(Args, Debug)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct Connection {
    /// URLs of the nodes, separated by commas: `redis://a,redis://b,redis://c`, or Sentinel groups as
    /// `redis+sentinel://s1,s2,s3/orders`.
    #[arg(
        long,
        global = true,
        value_name = "URLS",
        env = "REDLOCK_NODES",
        hide_env_values = true
    )]
    pub(crate) nodes: Option<String>,
    /// A file with such URLs. Lines that begin with # are left out.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_NODES_FILE")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// URLs of some nodes of one cluster, whose voters are the nodes.
    #[arg(
        long,
        global = true,
        value_name = "URLS",
        env = "REDLOCK_CLUSTER",
        hide_env_values = true
    )]
    pub(crate) cluster: Option<String>,
    /// The prefix of all keys.
    #[arg(long, global = true, env = "REDLOCK_PREFIX", default_value = "")]
    pub(crate) prefix: String,
    /// The longest ttl of any lock on these nodes. A node that has just started has no vote for this time.
    #[arg(long, global = true, value_name = "TIME", value_parser = time, env = "REDLOCK_MAX_TTL", default_value = "10s")]
    pub(crate) max_ttl: Duration,
    /// How much of the locks the nodes still know after a restart.
    #[arg(
        long,
        global = true,
        value_name = "HOW",
        env = "REDLOCK_DURABILITY",
        default_value = "volatile"
    )]
    pub(crate) durability: Durability,
    /// The name by which others find this process. The host and the process id by default.
    #[arg(long, global = true, value_name = "NAME", env = "REDLOCK_LABEL")]
    pub(crate) label: Option<String>,
    /// How long a node may take to answer.
    #[arg(long, global = true, value_name = "TIME", value_parser = time, default_value = "50ms")]
    pub(crate) node_timeout: Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Durability {
    Volatile,
    FsyncAlways,
    LosslessFailovers,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command under a lock.
    ///
    /// Waits for the lock, runs the command in a process group of its own, and releases the lock. The command has
    /// `REDLOCK_KEY`, `REDLOCK_TOKEN` and, with --fenced, `REDLOCK_FENCE`. Signals are passed on to the group. If the lock is
    /// about to be lost, or this process dies, the group gets SIGTERM and then SIGKILL.
    Run(RunArgs),
    /// Try to take a lock, and give it back at once.
    ///
    /// Succeeds if nobody has the lock. With --for, the lock stays taken for that time, although this process ends.
    Try(TryArgs),
    /// Run a command as the leader, again and again.
    ///
    /// All processes with the same name elect one leader, which runs the command as `run` does. If the leadership is lost,
    /// the command is ended, and the process is a candidate again. The program ends with the command.
    Elect(ElectArgs),
    /// Show who has a lock, and what each node says.
    Inspect(InspectArgs),
    /// Take a lock away from a holder that is gone.
    ///
    /// The holder is not asked. If it still works, two work at once until it notices.
    Unlock(UnlockArgs),
    /// Show who has a lock, each time that this changes.
    Watch(WatchArgs),
    /// Show the nodes: state, version, round trip, quarantine.
    Nodes(NodesArgs),
    /// Measure how long locks take, and which node is slow.
    Bench(BenchArgs),
    /// Print the completions for a shell.
    Completions { shell: Shell },
    /// Print the manual page.
    Man,
}

/// The kind of the lock.
#[derive(Args, Clone, Debug)]
pub(crate) struct LockArgs {
    /// Take a fencing token.
    #[arg(long)]
    pub(crate) fenced: bool,
    /// Share the lock with other readers.
    #[arg(short, long, conflicts_with = "fenced")]
    pub(crate) shared: bool,
    /// Take one of this many permits of a semaphore.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["fenced", "shared"])]
    pub(crate) permits: Option<usize>,
}

/// A command that runs under a lock.
#[derive(Args, Debug)]
pub(crate) struct Work {
    /// The name of the lock.
    pub(crate) key: OsString,
    /// How long the others wait for a process that died. 10s by default, and at most --max-ttl.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) lock: LockArgs,
    /// The time between SIGTERM and SIGKILL. 2s by default, or a quarter of the ttl. At most half of the ttl.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,
    /// Show no line while waiting.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The command and its arguments.
    #[arg(required = true, last = true, num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) work: Work,
    /// Give up after this time. Without this option, wait for as long as it takes.
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) wait: Option<Duration>,
    /// Give up at once if somebody has the lock.
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Renew the lock for this time at most.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) max_hold: Option<Duration>,
    /// The exit code if somebody has the lock.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
}

#[derive(Args, Debug)]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    pub(crate) work: Work,
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// The name of the lock.
    pub(crate) key: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct UnlockArgs {
    /// The name of the lock.
    pub(crate) key: OsString,
    /// Only what this holder has: its name, as `inspect` shows it, or its token.
    #[arg(long, value_name = "NAME")]
    pub(crate) holder: Option<String>,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// The name of the lock.
    pub(crate) key: OsString,
    /// How often to look.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    pub(crate) every: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct TryArgs {
    /// The name of the lock.
    pub(crate) key: OsString,
    /// How long the lock lives while it is tried.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) lock: LockArgs,
    /// Leave the lock taken for this time.
    #[arg(long = "for", value_name = "TIME", value_parser = time, conflicts_with = "shared")]
    pub(crate) keep: Option<Duration>,
}

#[derive(Args, Debug)]
pub(crate) struct NodesArgs {
    /// Show them again after each such time.
    #[arg(long, value_name = "TIME", value_parser = time, num_args = 0..=1, default_missing_value = "1s")]
    pub(crate) watch: Option<Duration>,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// How many locks to take, one after the other.
    #[arg(short = 'n', long, default_value_t = 1000)]
    pub(crate) locks: u32,
    /// How many tasks do so at once, each with a key of its own.
    #[arg(short, long, default_value_t = 1, action = ArgAction::Set)]
    pub(crate) tasks: u32,
}

/// Reads a time: a number of seconds, or a number with a unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let seconds = match &text[number.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("`{unit}` is no unit: use ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| "this is no number".to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_have_units() {
        for (text, millis) in [
            ("0", 0),
            ("5", 5000),
            ("0.5", 500),
            ("250ms", 250),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "-1", "s", "5d", "inf", "5 s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
