use std::{
    env,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;
use tempfile::TempDir;

/// Runs the program `"$@"` in a process group, and kills the whole group when standard input
/// ends. That happens when the owner drops it, and when the owner dies, because browsers outlive their
/// driver.
const WATCHDOG: &str = r#""$@" & read -r _; kill -KILL 0"#;

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
    watchdog: Child,
    /// The watchdog waits for the end of this pipe.
    leash: Option<ChildStdin>,
    /// Kept open for the output of the process.
    _output: BufReader<ChildStdout>,
    url: String,
    /// Dropped after the processes that write to it.
    profiles: TempDir,
}

impl Driver {
    /// Starts it.
    pub(crate) fn start() -> Self {
        let program = env::var("CHROMEDRIVER").unwrap_or_else(|_| "chromedriver".to_owned());
        // The watchdog's shell could not report a missing program.
        let version = Command::new(&program).arg("--version").output();
        if let Err(error) = version {
            panic!("cannot run `{program}`: {error}; `make browser` installs it");
        }
        let profiles = tempfile::tempdir().expect("a folder");
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog", &program, "--port=0"])
            .env("TMPDIR", profiles.path()) // they leave things behind
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let leash = watchdog.stdin.take();
        let mut output = BufReader::new(watchdog.stdout.take().expect("piped"));
        let port = output
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let port = line.split_once("started successfully on port ")?.1;
                port.trim_end_matches('.').parse::<u16>().ok()
            })
            .expect("chromedriver says where it listens");
        Self {
            watchdog,
            leash,
            _output: output,
            url: format!("http://127.0.0.1:{port}"),
            profiles,
        }
    }

    /// Starts a browser that shares nothing with the others.
    pub(crate) async fn browser(&self) -> Client {
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
        client.unwrap_or_else(|error| panic!("no browser: {error}; `make browser` installs one"))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.leash.take());
        let _ = self.watchdog.wait(); // killed by itself
    }
}
