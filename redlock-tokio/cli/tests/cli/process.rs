//! How the tests start the program, and what they see of it.

use std::{
    env,
    ffi::OsStr,
    fmt::Display,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Once, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use redlock_kit::RedisServers;
use serde_json::Value;
use signal_hook::{consts::SIGINT, flag};
use tempfile::{NamedTempFile, TempDir};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_redlock");

/// How long to wait for what must happen.
const LIMIT: Duration = Duration::from_secs(60);

/// Three servers, and a folder in which commands leave their traces.
pub(crate) struct Bed {
    pub(crate) servers: RedisServers,
    folder: TempDir,
}

impl Bed {
    pub(crate) fn new() -> Self {
        take_sigint();
        Self {
            servers: RedisServers::spawn(3).unwrap(),
            folder: TempDir::new().unwrap(),
        }
    }

    /// Returns the program with these words as its arguments, over the servers.
    pub(crate) fn redlock(&self, arguments: &str) -> Program {
        self.over_servers(program(arguments.split_whitespace()))
    }

    /// Returns the program, which runs a script of the shell under the lock `k`.
    pub(crate) fn run(&self, options: &str, script: &str) -> Program {
        self.redlock(&format!("run {options} k -- sh -c"))
            .arg(script)
    }

    /// Starts the program with a command that does not end, and waits until it has the lock `k`.
    pub(crate) fn holder(&self, options: &str) -> Running {
        let holder = self.run(options, "echo > held; exec sleep 60").start();
        self.trace("held");
        holder
    }

    /// Returns a line of the shell on a terminal of its own, by `script` of util-linux.
    pub(crate) fn on_terminal(&self, line: &str) -> Program {
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--echo", "never", "--command"]);
        command.args([&typed(line), "/dev/null"]);
        self.over_servers(Program::new(command))
    }

    fn over_servers(&self, mut program: Program) -> Program {
        program.0.current_dir(&self.folder);
        program.env("REDLOCK_NODES", self.servers.urls().join(","))
    }

    /// Has each server carry out a command.
    pub(crate) fn command(&self, command: &str) {
        (0..3).for_each(|server| _ = self.command_at(server, command));
    }

    /// Has this server carry out a command, and returns the line that it answers.
    pub(crate) fn command_at(&self, server: usize, command: &str) -> String {
        let mut server = TcpStream::connect(self.servers.get(server).address()).unwrap();
        write!(server, "{command}\r\n").unwrap();
        let mut lines = BufReader::new(server).lines();
        lines.next().expect("an answer").unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for a command to write this file, and returns the text.
    pub(crate) fn trace(&self, name: &str) -> String {
        let path = self.path(name);
        wait_for(format_args!("{name} to be written"), || {
            let text = fs::read_to_string(&path).ok()?;
            text.ends_with('\n').then_some(text)
        })
    }

    /// Waits for a command to write its process id into this file.
    pub(crate) fn pid(&self, name: &str) -> Pid {
        Pid(self.trace(name).trim().parse().unwrap())
    }

    /// Removes what commands have written.
    pub(crate) fn remove<const N: usize>(&self, names: [&str; N]) {
        for name in names {
            fs::remove_file(self.path(name)).unwrap();
        }
    }
}

/// Returns a line of a shell with the program in place of the word `redlock`.
pub(crate) fn typed(line: &str) -> String {
    line.replace("redlock", &format!("{PROGRAM} --node-timeout 500ms"))
}

/// Makes SIGINT end the commands of this process, even where a shell runs the tests in the background and has them ignore
/// SIGINT: a command ignores what its parent ignores, but not what its parent handles.
fn take_sigint() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ends = Arc::new(AtomicBool::new(true));
        flag::register_conditional_default(SIGINT, ends).unwrap();
    });
}

/// A program that is to be started.
pub(crate) struct Program(pub(crate) Command);

/// Returns the program with these arguments.
pub(crate) fn program<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Program {
    Program::at(PROGRAM, arguments)
}

impl Program {
    /// Returns the program at another path.
    pub(crate) fn at<S: AsRef<OsStr>>(
        path: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut command = Command::new(path);
        command.args(["--node-timeout", "500ms"]).args(arguments);
        Self::new(command)
    }

    fn new(mut command: Command) -> Self {
        for (variable, _) in env::vars_os() {
            if variable.to_string_lossy().starts_with("REDLOCK_") {
                command.env_remove(variable);
            }
        }
        // The servers have just started, and have forgotten nothing.
        command.env("REDLOCK_DURABILITY", "fsync-always");
        command.env_remove("NO_COLOR");
        command.stdin(Stdio::null());
        Self(command)
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.0.arg(argument);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Has it started in another way: by these words in front of it.
    pub(crate) fn by(self, starter: &[&str]) -> Self {
        let inner = self.0;
        let variables = inner.get_envs();
        let variables = variables.filter_map(|(name, value)| Some((name, value?)));
        let mut command = Command::new(starter[0]);
        command.args(&starter[1..]).arg(inner.get_program());
        command.args(inner.get_args()).envs(variables);
        command.current_dir(inner.get_current_dir().unwrap_or(Path::new(".")));
        command.stdin(Stdio::null());
        Self(command)
    }

    /// Starts it, with its output in files: what it leaves behind may keep them open.
    pub(crate) fn start(mut self) -> Running {
        let [out, err] = [(); 2].map(|()| NamedTempFile::new().unwrap());
        self.0.stdout(out.reopen().unwrap());
        self.0.stderr(err.reopen().unwrap());
        let child = self.0.spawn();
        let child = child.expect("`script` comes with util-linux, or with bsdutils");
        Running { child, out, err }
    }

    /// Runs it to its end, with this code.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Ended {
        self.start().ends(code)
    }
}

/// A program that runs. It is killed when this is dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: NamedTempFile,
    err: NamedTempFile,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid(i32::try_from(self.child.id()).unwrap())
    }

    /// Returns what it has written to standard output so far.
    pub(crate) fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    /// Returns what it has written to both of its outputs so far.
    pub(crate) fn said(&self) -> String {
        self.out() + &fs::read_to_string(&self.err).unwrap()
    }

    /// Waits until it has written this to one of them. Returns all that it has written.
    pub(crate) fn says(&self, words: &str) -> String {
        wait_for(format_args!("{words:?}"), || {
            Some(self.said()).filter(|it| it.contains(words))
        })
    }

    /// Waits for its end.
    pub(crate) fn status(&mut self) -> ExitStatus {
        wait_for("the end of the program", || self.child.try_wait().unwrap())
    }

    /// Waits for its end, which must have this code.
    #[track_caller]
    pub(crate) fn ends(mut self, code: i32) -> Ended {
        let status = self.status();
        let ended = Ended {
            out: self.out(),
            err: fs::read_to_string(&self.err).unwrap(),
        };
        assert_eq!(status.code(), Some(code), "{ended:?}");
        ended
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The outputs of a program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// Asserts that it has written this to one of its outputs.
    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Self {
        let has_said = self.out.contains(words) || self.err.contains(words);
        assert!(has_said, "{words:?}: {self:?}");
        self
    }

    /// Asserts that it has not.
    #[track_caller]
    pub(crate) fn says_nothing_of(self, words: &str) -> Self {
        let has_said = self.out.contains(words) || self.err.contains(words);
        assert!(!has_said, "{words:?}: {self:?}");
        self
    }

    /// Returns each line as the value that it is for scripts.
    pub(crate) fn values(&self) -> Vec<Value> {
        let lines = self.out.lines().chain(self.err.lines());
        let values = lines.map(serde_json::from_str);
        values.map(|it| it.expect("JSON")).collect()
    }

    /// Returns the last of them.
    pub(crate) fn value(&self) -> Value {
        self.values().pop().expect("a line")
    }
}

/// Waits until there is a result.
pub(crate) fn wait_for<T>(what: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            begin.elapsed() < LIMIT,
            "{what} did not come within {LIMIT:?}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is no child of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pid(pub(crate) i32);

impl Pid {
    pub(crate) fn signal(self, signal: &str) {
        let id = self.0.to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(sent.unwrap().success(), "{signal} to {id}");
    }

    /// Returns the state, as `ps` names it, and the parent. `None` if there is no such process.
    pub(crate) fn state(self) -> Option<(char, i32)> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
    }

    /// Returns whether it runs. One that has ended, and waits for its parent to notice, does not.
    pub(crate) fn runs(self) -> bool {
        self.state().is_some_and(|(state, _)| state != 'Z')
    }

    pub(crate) fn wait_for_end(self) -> Instant {
        wait_for(format_args!("the end of {self:?}"), || {
            (!self.runs()).then(Instant::now)
        })
    }

    /// Returns the guardian of this process.
    pub(crate) fn guardian(self) -> Self {
        wait_for("the guardian", || {
            let mut children = self.children().into_iter();
            children.find(|it| it.arguments().contains("--guardian"))
        })
    }

    pub(crate) fn arguments(self) -> String {
        let arguments = fs::read(format!("/proc/{}/cmdline", self.0)).unwrap_or_default();
        String::from_utf8_lossy(&arguments).into_owned()
    }

    /// Returns the children of this process.
    pub(crate) fn children(self) -> Vec<Self> {
        let is_child = |it: &Self| it.state().is_some_and(|(_, parent)| parent == self.0);
        processes().filter(is_child).collect()
    }
}

/// Returns all processes.
pub(crate) fn processes() -> impl Iterator<Item = Pid> {
    let names = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let ids = names.filter_map(|it| it.file_name().to_str()?.parse().ok());
    ids.map(Pid)
}
