//! What the example programs have in common.

use std::{
    env,
    io::{self, IsTerminal},
};

use anyhow::{Context, Result};
use redlock_tokio::{Redlock, RedlockBuilder};
use tracing_subscriber::EnvFilter;

/// Starts to configure a lock over the nodes named by the environment variable `REDLOCK_NODES`, a
/// list of URLs with commas between them; over five nodes within this process if it is not set. With
/// `REDLOCK_TRUST_FRESH_NODES` set, nodes that have just been started vote at once.
///
/// Returns a description of the nodes beside it, without secrets.
pub fn nodes_from_env() -> (RedlockBuilder, String) {
    let builder = Redlock::builder();
    match env::var("REDLOCK_NODES") {
        Ok(urls) => {
            let urls: Vec<_> = urls.split(',').filter(|url| !url.is_empty()).collect();
            let s = if urls.len() == 1 { "" } else { "s" };
            let description = format!("{} Redis node{s}", urls.len());
            let builder = if env::var_os("REDLOCK_TRUST_FRESH_NODES").is_some() {
                builder.trust_fresh_nodes()
            } else {
                builder
            };
            (builder.nodes(urls), description)
        }
        Err(_) => {
            let description =
                "5 embedded nodes; set REDLOCK_NODES=redis://..,redis://.. for real ones";
            (builder.embedded(), description.to_owned())
        }
    }
}

/// Connects to the nodes of [`nodes_from_env`], with default settings.
///
/// # Errors
///
/// Says what is wrong with the nodes.
pub async fn connect() -> Result<(Redlock, String)> {
    let (builder, description) = nodes_from_env();
    let redlock = builder.build().await.context("REDLOCK_NODES")?;
    Ok((redlock, description))
}

/// Writes what the libraries log to standard error: warnings, or what `RUST_LOG` asks for.
pub fn init_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}
