//! Many guards held at once. The holder is a process of its own, so that what it costs is told by the
//! system; this one keeps the servers.

mod holder;
mod process;

use std::{
    env,
    process::{Command, Stdio},
};

use redlock_kit::RedisServers;
use serde::{Deserialize, Serialize};

pub(crate) use self::holder::hold;
use crate::Result;

/// What the holder is to do.
#[derive(Serialize, Deserialize)]
struct Order {
    /// None if the nodes are in the memory of the holder.
    urls: Vec<String>,
    guards: usize,
    seconds: u64,
}

/// Returns the cost of holding many locks, as the holder tells it.
pub(crate) fn measure(guards: usize, seconds: u64, in_memory: bool) -> Result<String> {
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
    Ok(String::from_utf8(output.stdout)?)
}
