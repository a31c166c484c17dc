//! Many guards held at once. The holder is a process of its own, so that what it costs is told by the
//! system; this one keeps the servers.

mod holder;
mod process;

use std::{
    env, fmt,
    process::{Command, Stdio},
};

use redlock_tokio::test_util::RedisServers;
use serde::{Deserialize, Serialize};

pub(crate) use self::holder::hold;
use crate::{Result, table};

/// The cost of holding many locks.
#[derive(Serialize, Deserialize)]
pub(crate) struct Held {
    guards: usize,
    ttl_s: u64,
    /// How long all of them were held.
    held_s: f64,
    acquire_s: f64,
    /// Guards that say that they are not valid any more at the end of that.
    invalid: usize,
    /// Guards that say that they were lost, and why the first was.
    lost: usize,
    first_loss: Option<String>,
    /// The processor time meanwhile, as a share of one core.
    core_share: f64,
    /// How much the resident memory grew, for each guard.
    bytes_per_guard: f64,
    /// How often each guard was extended.
    extensions: f64,
    /// Script calls for each node and second: each extends what travels together.
    script_calls_per_s: f64,
    /// All commands for each node and second, those that scripts make included.
    commands_per_s: f64,
    /// Of half of the guards, each release waited for.
    release_half_s: f64,
    /// Of the other half, dropped at once: until all drops have returned, and until every release
    /// was delivered.
    drop_half_s: f64,
    deliver_half_s: f64,
    abandoned: usize,
    /// Keys that are left on the nodes after that.
    left_behind: u64,
}

/// What the holder is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// None if the nodes are in the memory of the holder.
    urls: Vec<String>,
    guards: usize,
    seconds: u64,
}

pub(crate) fn measure(guards: usize, seconds: u64, in_memory: bool) -> Result<Held> {
    let servers = RedisServers::spawn(if in_memory { 0 } else { 5 })?;
    let order = Order {
        urls: servers.urls(),
        guards,
        seconds,
    };
    let output = Command::new(env::current_exe()?)
        .args(["--bench", "--hold", &serde_json::to_string(&order)?])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the holder ended with {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "## {} guards held for {:.0} s, ttl {} s, five nodes\n",
            self.guards, self.held_s, self.ttl_s
        )?;
        let half = self.guards as f64 / 2.0;
        let seconds = |seconds: f64| format!("{seconds:.2} s");
        let mut table = table::new(["what", "redlock-tokio"]);
        for (what, figure) in [
            ("lost", self.lost.to_string()),
            ("not valid at the end", self.invalid.to_string()),
            (
                "processor time, share of one core",
                table::percent(self.core_share),
            ),
            (
                "resident memory per guard",
                format!("{:.0} B", self.bytes_per_guard),
            ),
            ("extensions of each", format!("{:.1}", self.extensions)),
            (
                "script calls per second and node",
                table::whole(self.script_calls_per_s),
            ),
            (
                "commands per second and node, in scripts too",
                table::whole(self.commands_per_s),
            ),
            ("acquire all", seconds(self.acquire_s)),
            (
                "acquire, per second",
                table::rate(self.guards as f64 / self.acquire_s),
            ),
            (
                "release and wait, per second",
                table::rate(half / self.release_half_s),
            ),
            ("drop half of them", seconds(self.drop_half_s)),
            ("until those are delivered", seconds(self.deliver_half_s)),
            ("releases abandoned", self.abandoned.to_string()),
            ("keys left behind", self.left_behind.to_string()),
        ] {
            table.add_row([what, &figure]);
        }
        writeln!(f, "{table}")?;
        if let Some(reason) = &self.first_loss {
            writeln!(f, "- the first loss: {reason}")?;
        }
        Ok(())
    }
}
