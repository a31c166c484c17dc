use std::{
    fs,
    io::{self, BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::{ioctl_fionbio, read},
    process::{Pid, Signal, kill_process},
};
use tempfile::TempDir;

use super::{
    error::{START_LIMIT, SpawnError},
    launch::{Launch, Mode, Program},
    port::Port,
};

/// How many ports to try if another program takes each of them first.
const PORT_TRIES: usize = 5;

/// Starts the server given as `"$@"`, prints its pid, and kills it when standard input ends. Standard input
/// ends when its owner drops it, and even when the owner dies. The shell has not waited for the server by then,
/// so the pid is still the server's. After the pid is printed, only the server has the shell's standard output,
/// so the output ends when the server does.
const WATCHDOG: &str =
    r#""$@" 3>&1 >>redis.log 2>&1 & echo $!; exec >&-; read -r _; kill -9 $!; wait $!"#;

/// One `redis-server` process on a port, and its successors on the same port after restarts.
///
/// See [`RedisServers`](super::RedisServers) and [`Sentinels`](super::Sentinels), which start
/// it.
#[derive(Debug)]
pub struct RedisServer {
    port: Port,
    launch: Launch,
    directory: TempDir,
    /// Any task that has a reference can kill and restart the server. A restart that panicked has left a process that
    /// was killed.
    process: Mutex<Process>,
}

/// A server that runs, or ran until it was killed.
#[derive(Debug)]
struct Process {
    pid: Pid,
    watchdog: Child,
    /// The watchdog kills the server when this is dropped.
    leash: Option<ChildStdin>,
}

impl RedisServer {
    /// Starts a server with more arguments, in which `{port}` stands for its port.
    pub(super) fn spawn(arguments: &[&str]) -> Result<Self, SpawnError> {
        Self::spawn_alone(Mode::Server, arguments)
    }

    /// Starts a sentinel by itself, with these lines in its configuration, in which `{port}` stands for its port.
    pub fn sentinel(lines: &[&str]) -> Result<Self, SpawnError> {
        Self::spawn_alone(Mode::Sentinel, lines)
    }

    fn spawn_alone(mode: fn(Vec<String>) -> Mode, words: &[&str]) -> Result<Self, SpawnError> {
        on_a_free_port(|| {
            let port = Port::reserve()?;
            let number = port.address().port().to_string();
            let words = words.iter().map(|it| it.replace("{port}", &number));
            let launch = Launch {
                mode: mode(words.collect()),
                source: None,
            };
            Self::start(port, launch)
        })
    }

    /// Starts a process on this port.
    pub(super) fn start(port: Port, launch: Launch) -> Result<Self, SpawnError> {
        let directory = tempfile::tempdir()?;
        launch.prepare(&Program::find()?, &port, directory.path())?;
        let process = Process::start(&port, &launch, directory.path())?;
        Ok(Self {
            port,
            launch,
            directory,
            process: Mutex::new(process),
        })
    }

    /// Kills the process at once (`SIGKILL`), like a crash.
    pub fn kill(&self) {
        self.process().signal(Signal::KILL);
    }

    /// Starts the server again on the same port, with the same arguments and in the same directory. Blocks
    /// until the server answers. Kills the server first if it still runs.
    ///
    /// The server has forgotten all keys, unless its arguments make it persistent, such as
    /// `["--appendonly", "yes", "--appendfsync", "always"]`.
    pub fn restart(&self) -> Result<(), SpawnError> {
        let mut process = self.process();
        process.end();
        *process = Process::start(&self.port, &self.launch, self.directory.path())?;
        Ok(())
    }

    /// Freezes the process (`SIGSTOP`): the server stops answering, and its connections stay open.
    pub fn freeze(&self) {
        self.process().signal(Signal::STOP);
    }

    /// Continues a frozen process (`SIGCONT`).
    pub fn thaw(&self) {
        self.process().signal(Signal::CONT);
    }

    /// Returns the port on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address().port()
    }

    /// Returns the address on the loopback interface.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns the process id. Each restart changes it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Returns the URL, without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Returns the URL of the server's Unix socket, without credentials.
    #[must_use]
    pub fn unix_url(&self) -> String {
        format!("unix://{}/redis.sock", self.directory.path().display())
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process {
    fn start(port: &Port, launch: &Launch, directory: &Path) -> Result<Self, SpawnError> {
        // The watchdog's shell cannot report that the program is missing.
        let program = Program::find()?;
        // Empty: the text of an earlier process says nothing about this one.
        let log = directory.join("redis.log");
        fs::write(&log, "")?;
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog", &program.path])
            .args(launch.arguments(&program, port))
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let leash = watchdog.stdin.take();
        let mut line = String::new();
        let mut output = BufReader::new(watchdog.stdout.take().expect("it is piped"));
        output.read_line(&mut line)?;
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| SpawnError::Ended {
            log: format!("no pid but {line:?}"),
        })?;
        let process = Self {
            pid,
            watchdog,
            leash,
        };
        // Only the server has the other end, so the pipe ends when the server does.
        let life = output.into_inner();
        ioctl_fionbio(&life, true).map_err(io::Error::from)?;
        wait_for(launch.ready(), &log, &life)?;
        Ok(process)
    }

    fn signal(&self, signal: Signal) {
        // After the watchdog has waited for the process, the pid may belong to another one.
        if self.leash.is_some() {
            // The watchdog has not waited for the process yet, so the pid belongs to the process even
            // after its end, and the signal cannot fail.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Kills the process, and waits until it has ended and its port is free.
    fn end(&mut self) {
        drop(self.leash.take());
        let _ = self.watchdog.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for this text in a server's log. The port is open before the server logs it.
fn wait_for(text: &str, log: &Path, life: &ChildStdout) -> Result<(), SpawnError> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        // Before the log is read, so that the log of a server that has ended is complete.
        let ended = read(life, &mut [0_u8]) == Ok(0);
        let log = fs::read_to_string(log).unwrap_or_default();
        if log.contains(text) {
            return Ok(());
        }
        if ended && log.contains("Address already in use") {
            return Err(SpawnError::PortTaken);
        }
        if ended {
            return Err(SpawnError::Ended { log });
        }
        if Instant::now() > deadline {
            return Err(SpawnError::NotReady { log });
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Starts something on a free port, and tries again if another program takes the port first.
pub(super) fn on_a_free_port<T>(
    start: impl Fn() -> Result<T, SpawnError>,
) -> Result<T, SpawnError> {
    let mut tries = 1;
    loop {
        match start() {
            Err(SpawnError::PortTaken) if tries < PORT_TRIES => tries += 1,
            outcome => return outcome,
        }
    }
}
