//! Functions that the example programs share.

#[cfg(feature = "page")]
mod light;
#[cfg(feature = "page")]
pub mod page;

use std::{
    env,
    io::{self, IsTerminal},
    net::{Ipv4Addr, SocketAddr},
    process,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use redlock_tokio::{Durability, Redlock};
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

#[cfg(feature = "page")]
pub use self::light::Light;

/// A third of the shortest ttl that a program uses.
const CONFIRMATION_WINDOW: Duration = Duration::from_millis(200);

/// Connects to the nodes that the environment names, with default settings. `REDLOCK_NODES` is a list of URLs, as
/// [`RedlockBuilder::nodes`](redlock_tokio::RedlockBuilder::nodes) reads it.
///
/// Without this variable, there are five nodes within this process. If `REDLOCK_TRUST_FRESH_NODES` is set,
/// nodes that have just started, or have just taken over, vote at once.
///
/// The second value describes the nodes, without secrets.
///
/// # Errors
///
/// Fails as [`RedlockBuilder::build`](redlock_tokio::RedlockBuilder::build) does.
pub async fn connect() -> Result<(Redlock, String)> {
    let builder = Redlock::builder().confirmation_window(CONFIRMATION_WINDOW);
    let builder = if env::var_os("REDLOCK_TRUST_FRESH_NODES").is_some() {
        builder.durability(Durability::AssumedForTests)
    } else {
        builder
    };
    if let Ok(list) = env::var("REDLOCK_NODES") {
        let redlock = builder.nodes(&list).build().await;
        let redlock = redlock.context("REDLOCK_NODES")?;
        let count = redlock.nodes().len();
        let s = if count == 1 { "" } else { "s" };
        Ok((redlock, format!("{count} Redis node{s}")))
    } else {
        let redlock = builder.embedded().build().await?;
        let description = "5 embedded nodes; set REDLOCK_NODES=redis://..,redis://.. for real ones";
        Ok((redlock, description.to_owned()))
    }
}

/// Writes the log of the libraries to standard error: warnings, or the targets and levels in `RUST_LOG`, such
/// as `redlock=debug,info`.
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

/// Listens on the loopback interface, and prints the address. Port 0 stands for any free port.
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

/// Signals within this time count as one, since a supervisor may signal a process and its group.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Returns a future that waits for Ctrl-C, or for the signal with which a supervisor stops a service. The
/// process listens for the signals from the call on. Another signal, more than a second later, ends the process
/// at once.
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
                    eprintln!("the second signal ends the process; its locks expire");
                    process::exit(1);
                }
            }
        });
    })
}

/// Locks a mutex, even if a task has panicked while it had it: the values of these programs are valid at any time.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parses a duration on the command line, in whole milliseconds, seconds or minutes: `250ms`, `5s`, `1m`.
///
/// # Errors
///
/// Fails without a number or a unit. The error names the units.
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

/// Returns whole milliseconds, as JSON and scripts take them.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Compiles the examples of the repository's README.
#[cfg(all(doctest, feature = "web"))]
#[doc = include_str!("../../README.md")]
pub struct Readme;
