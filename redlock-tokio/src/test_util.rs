//! Real, throwaway `redis-server` processes for tests.
//!
//! ```no_run
//! # use redlock_tokio::{Redlock, test_util::RedisServers};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let servers = RedisServers::spawn(5)?;
//! let redlock = Redlock::connect(servers.urls()).await?;
//!
//! servers.get(0).kill(); // one of five: nobody notices
//! let guard = redlock.lock("order:42").await?;
//! # Ok(())
//! # }
//! ```

use std::{
    env, fs, io,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, TcpListener},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use thiserror::Error;

/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How often a port that someone else was faster to take is replaced by another.
const PORT_TRIES: usize = 5;

/// Starts the server given as `"$@"` and says its pid; kills it when standard input ends, which
/// happens when its owner drops it, and also when its owner dies. The shell has not waited for the
/// server by then, so the pid is still the server's.
const WATCHDOG: &str = r#""$@" >/dev/null 2>&1 & echo $!; read -r _; kill -9 $!; wait $!"#;

/// Several independent `redis-server` processes on free ports of the loopback interface.
///
/// They keep nothing on disk, and end when this is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct RedisServers {
    servers: Vec<RedisServer>,
}

impl RedisServers {
    /// Starts `count` servers, and blocks until all of them answer.
    ///
    /// The program is `redis-server`, or what the environment variable `REDIS_SERVER` names.
    ///
    /// # Errors
    ///
    /// Fails if the program is missing (and says how to install it) or does not start.
    pub fn spawn(count: usize) -> Result<Self, SpawnError> {
        Self::spawn_with(count, &[])
    }

    /// Does the same with more arguments for the servers, such as `["--requirepass", "secret"]`.
    /// In an argument, `{port}` stands for the server's port.
    ///
    /// # Errors
    ///
    /// As for [`RedisServers::spawn`].
    pub fn spawn_with(count: usize, arguments: &[&str]) -> Result<Self, SpawnError> {
        let servers = (0..count)
            .map(|_| RedisServer::spawn(arguments))
            .collect::<Result<_, _>>()?;
        Ok(Self { servers })
    }

    /// Returns the servers' URLs.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    /// Returns one of the servers.
    ///
    /// # Panics
    ///
    /// If there is no server at this position.
    #[must_use]
    pub fn get(&self, index: usize) -> &RedisServer {
        &self.servers[index]
    }

    /// Returns all servers.
    pub fn iter(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers.iter()
    }

    /// Returns the number of servers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns whether there are no servers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}

/// One `redis-server` process.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    pid: Pid,
    directory: TempDir,
    watchdog: Child,
    /// The watchdog waits for its end.
    leash: Option<ChildStdin>,
}

impl RedisServer {
    fn spawn(arguments: &[&str]) -> Result<Self, SpawnError> {
        let mut tries = 1;
        loop {
            match Self::start(arguments) {
                Err(SpawnError::PortTaken) if tries < PORT_TRIES => tries += 1,
                outcome => return outcome,
            }
        }
    }

    fn start(arguments: &[&str]) -> Result<Self, SpawnError> {
        let program = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        // The watchdog's shell could not say that the program is missing.
        match Command::new(&program).arg("--version").output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SpawnError::NotInstalled { program });
            }
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let directory = tempfile::tempdir()?;
        let port = free_port()?;
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog", &program])
            .args(["--port", &port.to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args([
                "--unixsocket",
                "redis.sock",
                "--logfile",
                "redis.log",
                "--dir",
            ])
            .arg(directory.path())
            .args(
                arguments
                    .iter()
                    .map(|it| it.replace("{port}", &port.to_string())),
            )
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let leash = watchdog.stdin.take();
        let mut line = String::new();
        if let Some(output) = watchdog.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| SpawnError::NotReady {
            log: format!("no pid but {line:?}"),
        })?;
        let server = Self {
            port,
            pid,
            directory,
            watchdog,
            leash,
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Returns the port on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Returns the URL, without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the URL of the server's Unix socket, without credentials.
    #[must_use]
    pub fn unix_url(&self) -> String {
        format!("unix://{}/redis.sock", self.directory.path().display())
    }

    /// Kills the process at once (`SIGKILL`), as a crash does.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Freezes the process (`SIGSTOP`): it answers nothing, and its connections stay open.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen process go on (`SIGCONT`).
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // The process is the watchdog's child and not waited for, so the pid is its own even
        // after its end, and signalling it cannot fail.
        let _ = kill_process(self.pid, signal);
    }

    fn wait_until_ready(&self) -> Result<(), SpawnError> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let log = self.log();
            // The port is open before the server says so.
            if log.contains("Ready to accept connections") {
                return Ok(());
            }
            if log.contains("Address already in use") {
                return Err(SpawnError::PortTaken);
            }
            if Instant::now() > deadline {
                return Err(SpawnError::NotReady { log });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("redis.log")).unwrap_or_default()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.leash.take());
        let _ = self.watchdog.wait();
    }
}

fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Why a server could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The program is not there.
    #[error(
        "{program} was not found; install it with `apt-get install redis-server`, \
         `dnf install redis` or `brew install redis`"
    )]
    NotInstalled {
        /// The program.
        program: String,
    },
    /// It did not answer in time.
    #[error("the server did not come up; its log says:\n{log}")]
    NotReady {
        /// Its log.
        log: String,
    },
    /// Somebody else took the port before the server could, several times.
    #[error("no free port: each was taken before the server could open it")]
    PortTaken,
    /// A process or a directory could not be made.
    #[error(transparent)]
    Io(#[from] io::Error),
}
