use std::{ffi::OsString, ops::RangeInclusive, slice, time::Duration};

use clap::{
    ArgAction, Args, ColorChoice, Parser, Subcommand, ValueEnum, builder::BoolishValueParser,
    value_parser,
};
use clap_complete::Shell;
use redlock_core::{Ttl, Validity};
use redlock_tokio::Drift;

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
    /// KEY is in hexadecimal digits, as `key_hex` of the JSON.
    #[arg(long, global = true)]
    pub(crate) hex: bool,
    /// When to use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The same configuration as that of the services.
#[derive(Args, Debug)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct Connection {
    /// URLs of the nodes, separated by commas: `redis://a,redis://b,redis://c`, a cluster as
    /// `redis+cluster://a,b,c?voters=3`, or Sentinel groups as `redis+sentinel://s1,s2,s3/orders`.
    #[arg(
        long,
        global = true,
        value_name = "URLS",
        env = "REDLOCK_NODES",
        hide_env_values = true
    )]
    pub(crate) nodes: Option<String>,
    /// A file with these settings: `REDLOCK_NODES=..` and the other variables, one in each line. Options and variables
    /// count more.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_CONFIG")]
    pub(crate) config: Option<OsString>,
    /// The prefix of all keys.
    #[arg(long, global = true, env = "REDLOCK_PREFIX", default_value = "")]
    pub(crate) prefix: String,
    /// The longest ttl of any lock on these nodes. A node that has just started has no vote for this time.
    #[arg(long, global = true, value_name = "TIME", value_parser = ttl, env = "REDLOCK_MAX_TTL", default_value = "10s")]
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
    /// For how long a server of a Sentinel group or a cluster votes after a majority has named it. At most a third of any ttl.
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        value_parser = within(MILLISECOND..=HOUR),
        env = "REDLOCK_CONFIRMATION_WINDOW",
        default_value = "3s"
    )]
    pub(crate) confirmation_window: Duration,
    /// Let nodes vote whose INFO says less than the checks need.
    #[arg(
        long,
        global = true,
        value_name = "BOOL",
        value_parser = BoolishValueParser::new(),
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        env = "REDLOCK_ALLOW_UNVETTED_NODES"
    )]
    pub(crate) allow_unvetted_nodes: bool,
    /// The certificates of the CAs that may sign those of the servers, as PEM. Those of the system by default, or of
    /// `SSL_CERT_FILE`.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_TLS_CA")]
    pub(crate) tls_ca: Option<OsString>,
    /// The certificate that this client shows, as PEM.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_TLS_CERT")]
    pub(crate) tls_cert: Option<OsString>,
    /// The private key of --tls-cert, as PEM.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_TLS_KEY")]
    pub(crate) tls_key: Option<OsString>,
    /// The name that the servers' certificates must have, if it is not the host.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "REDLOCK_TLS_SERVER_NAME"
    )]
    pub(crate) tls_server_name: Option<String>,
    /// The name by which others find this process. The host and the process id by default.
    #[arg(long, global = true, value_name = "NAME", env = "REDLOCK_CLIENT_NAME")]
    pub(crate) client_name: Option<String>,
    /// How long a node may take to answer.
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        value_parser = within(MILLISECOND..=HOUR),
        env = "REDLOCK_NODE_TIMEOUT",
        default_value = "50ms"
    )]
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
    /// Run a command under a lock, or under several.
    ///
    /// Waits for the lock, runs the command in the process group of this process, and releases the lock. The command
    /// has `REDLOCK_KEY`, `REDLOCK_TOKEN` and, with --fenced, `REDLOCK_FENCE`. Signals are passed on to it. If the
    /// lock is about to be lost, or this process dies, the command and all that it has started get SIGTERM and then
    /// SIGKILL.
    #[command(override_usage = "redlock run [OPTIONS] <KEY>... -- <COMMAND>...")]
    Run(RunArgs),
    /// Run a command as the leader, again and again.
    ///
    /// All processes with the same name elect one leader, which runs the command as `run` does. If the leadership is lost,
    /// the command is ended, and the process is a candidate again. The program ends with the command.
    #[command(override_usage = "redlock elect [OPTIONS] <KEY> -- <COMMAND>...")]
    Elect(ElectArgs),
    /// Show who has a lock, and what each node says.
    #[command(override_usage = "redlock inspect [OPTIONS] <KEY>")]
    Inspect(InspectArgs),
    /// List the locks that are held now, by whom, and on how many nodes.
    ///
    /// Asks all nodes for the keys with the prefix, by SCAN in steps of a hundred names. The user of the nodes needs the
    /// right to SCAN.
    List,
    /// Take a lock away from a holder that is gone.
    ///
    /// The holder is not asked. If it still works, two work at once until it notices.
    #[command(override_usage = "redlock unlock [OPTIONS] <KEY>")]
    Unlock(UnlockArgs),
    /// Show who has a lock, or leads in an election, each time that this changes.
    #[command(override_usage = "redlock watch [OPTIONS] <KEY>")]
    Watch(WatchArgs),
    /// Show the nodes: state, version, round trip, quarantine, and the server that is the master.
    Nodes(NodesArgs),
    /// Print the completions for a shell.
    Completions { shell: Shell },
    /// Print the manual page, or that of a command.
    Man {
        /// The command, as in `redlock man run`.
        command: Option<String>,
    },
}

impl Command {
    /// Returns each KEY, as it was written.
    pub(crate) fn keys_mut(&mut self) -> &mut [OsString] {
        match self {
            Self::Run(args) => &mut args.keys,
            Self::Elect(args) => slice::from_mut(&mut args.key),
            Self::Inspect(args) => slice::from_mut(&mut args.key),
            Self::Unlock(args) => slice::from_mut(&mut args.key),
            Self::Watch(args) => slice::from_mut(&mut args.key),
            Self::List | Self::Nodes(_) | Self::Completions { .. } | Self::Man { .. } => &mut [],
        }
    }
}

/// The kind of the lock.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LockArgs {
    /// Take a fencing token.
    #[arg(long)]
    pub(crate) fenced: bool,
    /// Share the lock with others that do so.
    #[arg(short, long, conflicts_with = "fenced")]
    pub(crate) shared: bool,
    /// Have the lock alone, and keep new ones that share it out while waiting. Without it, they may never let this one in.
    #[arg(long, conflicts_with = "shared")]
    pub(crate) writer: bool,
    /// Take one of this many permits of a semaphore, 128 at most. It has nothing to do with the lock of the same name.
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = value_parser!(u8).range(1..=128),
        conflicts_with_all = ["fenced", "shared", "writer"]
    )]
    pub(crate) permits: Option<u8>,
}

/// A command that runs under a lock.
#[derive(Args, Debug)]
pub(crate) struct Work {
    /// How long the others wait for a process that died. 10s by default, and at most --max-ttl.
    #[arg(long, value_name = "TIME", value_parser = ttl, env = "REDLOCK_TTL")]
    pub(crate) ttl: Option<Duration>,
    /// The time between SIGTERM and SIGKILL. 2s by default, or a quarter of the ttl. At most half of the ttl.
    #[arg(long, value_name = "TIME", value_parser = within(MILLISECOND..=CENTURY))]
    pub(crate) grace: Option<Duration>,
    /// Write nothing while waiting.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The command and its arguments. Put `--` before it.
    #[arg(required = true, last = true, num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The name of the lock. With several, all are locked together, or none.
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<OsString>,
    #[command(flatten)]
    pub(crate) work: Work,
    #[command(flatten)]
    pub(crate) lock: LockArgs,
    /// Give up after this time. Without this option, wait for as long as it takes.
    #[arg(short, long, value_name = "TIME", value_parser = within(Duration::ZERO..=CENTURY))]
    pub(crate) wait: Option<Duration>,
    /// Give up at once if somebody has the lock.
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Renew the lock for this time at most.
    #[arg(long, value_name = "TIME", value_parser = within(MILLISECOND..=CENTURY))]
    pub(crate) max_hold: Option<Duration>,
    /// Leave the lock taken until this time has passed since it was taken, although the command is done. For a job that
    /// one host is to run.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = within(MILLISECOND..=CENTURY),
        conflicts_with = "shared"
    )]
    pub(crate) keep_for: Option<Duration>,
    /// The exit code if somebody has the lock.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
}

#[derive(Args, Debug)]
pub(crate) struct ElectArgs {
    /// The name of the election.
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) work: Work,
    /// Take a fencing token.
    #[arg(long)]
    pub(crate) fenced: bool,
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
    /// Only what this holder has: its name, its token, or the whole value of the key.
    #[arg(long, value_name = "NAME")]
    pub(crate) holder: Option<OsString>,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// The name of the lock, or of the election.
    pub(crate) key: OsString,
    /// How often to look.
    #[arg(long, value_name = "TIME", value_parser = within(PERIODS), default_value = "1s")]
    pub(crate) every: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct NodesArgs {
    /// Show them again after each such time.
    #[arg(long, value_name = "TIME", value_parser = within(PERIODS), num_args = 0..=1, default_missing_value = "1s")]
    pub(crate) watch: Option<Duration>,
}

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
/// As long as a ttl can be. A clock can add it to any time.
const CENTURY: Duration = Ttl::MAX.as_duration();
/// How often to look at the nodes. A shorter time would load them, and show no more.
const PERIODS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(86_400);

/// Returns what reads a time between these bounds.
fn within(
    bounds: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let time = time(text)?;
        if bounds.contains(&time) {
            return Ok(time);
        }
        let (shortest, longest) = (bounds.start(), bounds.end());
        Err(if time < *shortest {
            format!("it is shorter than {shortest:?}")
        } else if *longest == CENTURY {
            "it is longer than 100 years".to_owned()
        } else {
            format!("it is longer than {longest:?}")
        })
    }
}

/// Reads a ttl that a lock can have.
fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = Ttl::new(time(text)?).map_err(|error| error.to_string())?;
    Validity::new(ttl, Drift::default()).map_err(|error| error.to_string())?;
    Ok(ttl.as_duration())
}

/// Reads a time: a number of seconds, or a number with a unit.
fn time(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let seconds = match &text[number.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("`{unit}` is no unit: use ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| "this is no number".to_owned())?;
    if number < 0.0 {
        return Err("it is negative".to_owned());
    }
    Duration::try_from_secs_f64(number * seconds)
        .map_err(|_| "it is longer than 100 years".to_owned())
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

    /// Each option with a number, the command that has it, and what it must not be.
    #[test]
    fn each_number_is_checked_where_it_is_read() {
        let run = ["redlock", "run", "k", "OPTION", "--", "true"];
        let watch = ["redlock", "watch", "k", "OPTION"];
        let nodes = ["redlock", "nodes", "OPTION"];
        for (command, option, values) in [
            (&run[..], "--ttl", &["0", "2ms", "1e30", "x"][..]),
            (&run, "--max-ttl", &["0", "2ms", "876001h"]),
            (&run, "--node-timeout", &["0", "61m"]),
            (&run, "--confirmation-window", &["0", "61m"]),
            (&run, "--grace", &["0", "1e30", "-1"]),
            (&run, "--wait", &["-1", "1e30", "nan", "inf"]),
            (&run, "--max-hold", &["0", "1e30"]),
            (&run, "--keep-for", &["0", "1e30"]),
            (&run, "--permits", &["0", "129", "-1", "1.5"]),
            (&run, "--conflict-exit-code", &["-1", "256"]),
            (&run, "--allow-unvetted-nodes", &["2"]),
            (&watch, "--every", &["0", "9ms", "1e30"]),
            (&nodes, "--watch", &["0", "9ms", "25h"]),
        ] {
            for value in values {
                let argument = format!("{option}={value}");
                let arguments = command.iter().map(|it| match *it {
                    "OPTION" => &*argument,
                    other => other,
                });
                let error = Cli::try_parse_from(arguments).expect_err(&argument);
                assert!(error.to_string().contains(option), "{error}");
                assert!(error.to_string().contains(value), "{error}");
            }
        }
    }

    #[test]
    fn a_leader_has_the_lock_alone() {
        for option in ["--shared", "--permits=2", "--writer"] {
            let arguments = ["redlock", "elect", "k", option, "--", "true"];
            assert!(Cli::try_parse_from(arguments).is_err(), "{option}");
        }
    }
}
