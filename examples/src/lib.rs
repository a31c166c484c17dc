//! What the example programs have in common.

use std::{
    env,
    io::{self, IsTerminal},
    net::{Ipv4Addr, SocketAddr},
    process,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use redlock_tokio::{Redlock, RedlockBuilder};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

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

/// Writes what the libraries log to standard error: warnings, or what `RUST_LOG` asks for, such as
/// `redlock_tokio=debug,info`.
pub fn init_logging() {
    let asked = env::var("RUST_LOG").ok();
    let filter = asked.and_then(|targets| targets.parse().ok());
    let output = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    tracing_subscriber::registry()
        .with(output)
        .with(filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN)))
        .init();
}

/// Listens on the loopback interface, on a port that is free if this one is 0, and prints where.
///
/// # Errors
///
/// Fails if the port is taken.
pub async fn listen(port: u16) -> Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(listener)
}

/// Signals that come within this time are one: who stops a process may stop its group as well.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Waits for Ctrl-C, or for the signal with which a supervisor stops a service. Listens for them from
/// the call on. Whoever asks again, more than a second later, does not want to wait, and the process ends.
///
/// # Errors
///
/// Fails if the operating system delivers no signals.
pub fn asked_to_stop() -> Result<impl Future<Output = ()> + Send + 'static> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut asked = async move || {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    };
    Ok(async move {
        asked().await;
        let since = Instant::now();
        tokio::spawn(async move {
            loop {
                asked().await;
                if since.elapsed() > AT_ONCE {
                    eprintln!("asked to stop twice: locks are left to expire");
                    process::exit(1);
                }
            }
        });
    })
}

/// Parses a duration given on the command line, in whole milliseconds, seconds or minutes: `250ms`,
/// `5s`, `1m`.
///
/// # Errors
///
/// Names the units.
pub fn duration(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number = digits.parse().context("a number and a unit, such as 5s")?;
    Ok(match &text[digits.len()..] {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => bail!("the unit is one of ms, s and m"),
    })
}

/// Compiles the examples of the repository's README.
#[cfg(all(doctest, feature = "web"))]
#[doc = include_str!("../../README.md")]
pub struct Readme;
