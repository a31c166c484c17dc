//! Functions that the example programs share.

use std::{
    env,
    io::{self, IsTerminal},
    net::{Ipv4Addr, SocketAddr},
    process,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use redlock_tokio::{ClusterNodes, Redlock, RedlockBuilder};
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

/// A third of the shortest ttl that a program uses.
const CONFIRMATION_WINDOW: Duration = Duration::from_millis(200);

/// Returns a builder over the nodes in the environment:
///
/// - `REDLOCK_NODES` is a list of URLs with commas between them. A URL may also be the one of a Sentinel group:
///   `redis+sentinel://host:port,host:port/group`.
/// - `REDLOCK_CLUSTER` is a list of URLs of some nodes of one cluster.
///
/// Without any of them, the builder has five nodes within this process. If `REDLOCK_TRUST_FRESH_NODES` is set,
/// nodes that have just started, or have just taken over, vote at once.
///
/// The second value describes the nodes, without secrets.
pub fn nodes_from_env() -> (RedlockBuilder, String) {
    let builder = Redlock::builder();
    let (builder, description) = if let Ok(urls) = env::var("REDLOCK_NODES") {
        let urls = urls_in(&urls);
        let s = if urls.len() == 1 { "" } else { "s" };
        let description = format!("{} Redis node{s}", urls.len());
        (builder.nodes(urls), description)
    } else if let Ok(seeds) = env::var("REDLOCK_CLUSTER") {
        let cluster = ClusterNodes::new(urls_in(&seeds));
        (builder.cluster(cluster), "a Redis cluster".to_owned())
    } else {
        let description = "5 embedded nodes; set REDLOCK_NODES=redis://..,redis://.. for real ones";
        return (builder.embedded(), description.to_owned());
    };
    let builder = builder.confirmation_window(CONFIRMATION_WINDOW);
    let builder = if env::var_os("REDLOCK_TRUST_FRESH_NODES").is_some() {
        builder.trust_fresh_nodes()
    } else {
        builder
    };
    (builder, description)
}

/// Returns the URLs in a list with commas between them. A URL of a Sentinel group has commas of its own, between
/// the `//` and the next slash.
fn urls_in(list: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    for part in list.split(',').filter(|it| !it.is_empty()) {
        let is_open = |url: &&mut String| {
            let sentinels = url.split_once("+sentinel://");
            sentinels.is_some_and(|(_, rest)| !rest.contains('/'))
        };
        match urls.last_mut().filter(is_open) {
            Some(url) => *url += &format!(",{part}"),
            None => urls.push(part.to_owned()),
        }
    }
    urls
}

/// Connects to the nodes of [`nodes_from_env`], with default settings.
///
/// # Errors
///
/// Fails as [`RedlockBuilder::build`] does.
pub async fn connect() -> Result<(Redlock, String)> {
    let (builder, description) = nodes_from_env();
    let variable = ["REDLOCK_NODES", "REDLOCK_CLUSTER"];
    let variable = variable.into_iter().find(|it| env::var_os(it).is_some());
    let redlock = builder.build().await;
    let redlock = redlock.context(variable.unwrap_or("embedded nodes"))?;
    Ok((redlock, description))
}

/// Writes the log of the libraries to standard error: warnings, or the targets and levels in `RUST_LOG`, such
/// as `redlock_tokio=debug,info`.
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

/// Compiles the examples of the repository's README.
#[cfg(all(doctest, feature = "web"))]
#[doc = include_str!("../../README.md")]
pub struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_between_sentinels_do_not_end_a_url() {
        let group = "redis+sentinel://:secret@a:1,b:2/orders?db=1";
        for (list, expected) in [
            ("redis://a,redis://b", &["redis://a", "redis://b"][..]),
            (
                &format!("{group},{group},redis://c"),
                &[group, group, "redis://c"],
            ),
            ("redis://a,nonsense,", &["redis://a", "nonsense"]),
            ("", &[]),
        ] {
            assert_eq!(urls_in(list), expected, "{list}");
        }
    }
}
