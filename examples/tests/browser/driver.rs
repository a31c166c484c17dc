use std::{
    env,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use fantoccini::ClientBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use crate::page::Page;

/// How many times to start `chromedriver`. It takes a free port of IPv4, and ends if another program has the same
/// port of IPv6.
const TRIES: usize = 5;

/// Runs the program `"$@"` in a process group, and kills the whole group when standard input
/// ends. That happens when the owner drops it, and when the owner dies, because browsers outlive their
/// driver. The shell closes its own standard output, so the output ends when the driver does.
const WATCHDOG: &str = r#""$@" & exec >&-; read -r _; kill -KILL 0"#;

/// The switches with which headless browsers run as root, in small containers and offline.
const ARGUMENTS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1100,900",
];

/// A `chromedriver` on a port of its own, with the browsers that it has started.
pub(crate) struct Driver {
    /// One test at a time runs browsers, because they are heavy.
    turn: Option<MutexGuard<'static, ()>>,
    watchdog: Child,
    /// The watchdog waits for the end of this pipe.
    leash: Option<ChildStdin>,
    /// Kept open for the output of the driver.
    output: BufReader<ChildStdout>,
    url: String,
    /// Dropped after the processes that write to it.
    profiles: TempDir,
}

impl Driver {
    /// Starts it.
    pub(crate) async fn start() -> Self {
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        let program = env::var("CHROMEDRIVER").unwrap_or_else(|_| "chromedriver".to_owned());
        let mut printed = String::new();
        for _ in 0..TRIES {
            match Self::start_once(&program) {
                Ok(mut driver) => {
                    driver.turn = Some(turn);
                    return driver;
                }
                Err(output) => printed = output,
            }
        }
        panic!(
            "`{program}`, which `make browser` installs, ended {TRIES} times before it listened: {printed}"
        );
    }

    /// Starts it, or returns what it printed before it ended.
    fn start_once(program: &str) -> Result<Self, String> {
        let profiles = tempfile::tempdir().expect("a folder");
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog", program, "--port=0"])
            .env("TMPDIR", profiles.path()) // they leave things behind
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut driver = Self {
            turn: None,
            leash: watchdog.stdin.take(),
            output: BufReader::new(watchdog.stdout.take().expect("piped")),
            watchdog,
            url: String::new(),
            profiles,
        };
        let mut printed = String::new();
        for line in driver.output.by_ref().lines().map_while(Result::ok) {
            if let Some(port) = port_in(&line) {
                driver.url = format!("http://127.0.0.1:{port}");
                return Ok(driver);
            }
            printed += &line;
            printed.push('\n');
        }
        Err(printed)
    }

    /// Opens the page of a server in a browser that shares nothing with the others.
    pub(crate) async fn open(&self, server: &str) -> Page {
        let profile = tempfile::tempdir_in(&self.profiles)
            .expect("a folder")
            .keep();
        let mut arguments: Vec<_> = ARGUMENTS.iter().map(|&it| it.to_owned()).collect();
        arguments.push(format!("--user-data-dir={}", profile.display()));
        let mut options = json!({ "args": arguments });
        if let Ok(chromium) = env::var("CHROMIUM") {
            options["binary"] = chromium.into();
        }
        let capabilities = json!({ "goog:chromeOptions": options });
        let capabilities = capabilities.as_object().expect("an object").clone();
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&self.url)
            .await;
        match client {
            Ok(browser) => Page::open(browser, server).await,
            Err(error) => panic!("no browser: {error}; `make browser` installs one"),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.leash.take());
        let _ = self.watchdog.wait(); // killed by itself
        drop(self.turn.take());
    }
}

/// Finds the port in the line with which `chromedriver` says that it listens.
fn port_in(line: &str) -> Option<u16> {
    let port = line.split_once("started successfully on port ")?.1;
    port.trim_end_matches('.').parse().ok()
}

/// A driver that ends before it listens is reported, and the test does not wait for ever.
#[test]
fn a_driver_that_cannot_start_says_why() {
    let started = Driver::start_once("echo");
    assert_eq!(started.err().as_deref(), Some("--port=0\n"));
}
