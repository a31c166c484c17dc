//! How the tests start the program.

use std::{
    env,
    ffi::OsStr,
    fmt::Display,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Once, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use redlock_kit::RedisServers;
use signal_hook::{consts::SIGINT, flag};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_redlock");

/// How long to wait for what must happen.
const LIMIT: Duration = Duration::from_secs(30);

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
    pub(crate) fn redlock(&self, arguments: &str) -> Command {
        let mut command = program(arguments.split_whitespace());
        command.env("REDLOCK_NODES", self.servers.urls().join(","));
        command
    }

    /// Returns the program, which runs a script of the shell under the lock `k`.
    pub(crate) fn run(&self, options: &str, script: &str) -> Command {
        let mut command = self.redlock(&format!("run {options} k -- sh -c"));
        command.arg(script).current_dir(&self.folder);
        command
    }

    /// Starts the program with a command that does not end, and waits until it has the lock `k`.
    pub(crate) fn holder(&self, options: &str) -> Child {
        let mut holder = self.run(options, "echo > held; exec sleep 60");
        let holder = holder.spawn().unwrap();
        self.trace("held");
        holder
    }

    /// Runs the program to its end.
    pub(crate) fn output(&self, arguments: &str) -> Output {
        self.redlock(arguments).output().unwrap()
    }

    /// Runs the program to its end, and returns its code.
    pub(crate) fn code_of(&self, arguments: &str) -> i32 {
        code(&self.output(arguments))
    }

    /// Waits for the lock `k`, which must come.
    pub(crate) fn get_lock(&self) {
        let output = self.run("", "true").output().unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    }

    /// Returns a command that starts the program in another way: by these words in front of it.
    pub(crate) fn by(&self, starter: &[&str], inner: &Command) -> Command {
        let variables = inner.get_envs();
        let variables = variables.filter_map(|(name, value)| Some((name, value?)));
        let mut command = Command::new(starter[0]);
        command.args(&starter[1..]).arg(PROGRAM);
        command.args(inner.get_args()).envs(variables);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Returns a line of the shell on a terminal of its own, by `script` of util-linux.
    pub(crate) fn on_terminal(&self, line: &str) -> Command {
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--echo", "never", "--command", line]);
        command.arg("/dev/null").current_dir(&self.folder);
        command.env("REDLOCK_NODES", self.servers.urls().join(","));
        command.env("REDLOCK_DURABILITY", "fsync-always");
        command
    }

    /// Has each server carry out a command.
    pub(crate) fn command(&self, command: &str) {
        (0..3).for_each(|server| _ = self.command_at(server, command));
    }

    /// Has this server carry out a command, and returns the line that it answers.
    pub(crate) fn command_at(&self, server: usize, command: &str) -> String {
        let url = &self.servers.urls()[server];
        let mut server = TcpStream::connect(url.trim_start_matches("redis://")).unwrap();
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
        wait_for(format_args!("{name} to be written"), || written(&path))
    }

    /// Waits for a command to write its process id into this file.
    pub(crate) fn pid(&self, name: &str) -> Pid {
        Pid(self.trace(name).trim().parse().unwrap())
    }
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

/// Returns the program with these arguments.
pub(crate) fn program<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(PROGRAM);
    for (variable, _) in env::vars_os() {
        if variable.to_string_lossy().starts_with("REDLOCK_") {
            command.env_remove(variable);
        }
    }
    // The servers have just started, and have forgotten nothing.
    command.env("REDLOCK_DURABILITY", "fsync-always");
    command.args(["--node-timeout", "500ms"]).args(arguments);
    command.stdin(Stdio::null());
    command
}

fn written(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.ends_with('\n').then_some(text)
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
    pub(crate) fn of(child: &Child) -> Self {
        Self(i32::try_from(child.id()).unwrap())
    }

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

    fn arguments(self) -> String {
        let arguments = fs::read(format!("/proc/{}/cmdline", self.0)).unwrap_or_default();
        String::from_utf8_lossy(&arguments).into_owned()
    }

    /// Returns the children of this process.
    pub(crate) fn children(self) -> Vec<Self> {
        let all = fs::read_dir("/proc").unwrap();
        let ids = all.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
        let is_child = |it: &Self| it.state().is_some_and(|(_, parent)| parent == self.0);
        ids.map(Self).filter(is_child).collect()
    }
}

/// Returns whether the arguments of any process contain this text.
pub(crate) fn is_in_any_command(text: &str) -> bool {
    let names = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut ids = names.filter_map(|it| it.file_name().to_str()?.parse().ok());
    ids.any(|it| Pid(it).arguments().contains(text))
}

/// Waits for a program that may hang, and returns its code. `None` if a signal has ended it.
pub(crate) fn end_of(program: &mut Child) -> Option<i32> {
    wait_for("the end of the program", || program.try_wait().unwrap()).code()
}

/// The end of the program, for assertions.
pub(crate) fn code(output: &Output) -> i32 {
    let code = output.status.code();
    code.expect("no signal has ended the program")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
