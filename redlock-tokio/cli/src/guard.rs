//! The guardian: the parent of the command, beside the program that holds the lock. It ends the command and all that stems from
//! it when the lock ends, even if the program is killed or stopped.

use std::{
    env,
    ffi::{CString, OsString},
    fmt::Display,
    io::{self, BufRead, BufReader, IoSliceMut, IsTerminal, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    process::{Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use nix::{
    errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp},
    sys::signal::{self, SigSet},
    unistd,
};
use rustix::{
    io::{Errno, FdFlags, fcntl_setfd},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    process::{Pid, Signal, WaitOptions, WaitStatus, wait},
};

use crate::{
    exit::Exit,
    family::{Family, ask_to_end, send},
    guardian::{ARGUMENT, LAST_WAIT, LOOK_EVERY, TOLD, now},
    signals::{self, Ignored},
};

/// How long the program may take to act before the guardian does.
const SLACK: Duration = Duration::from_millis(250);

/// Timers may stand still while the machine sleeps, and validity does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How many milliseconds to wait for a terminal that cannot be written to.
const SAY_WITHIN: u8 = 100;

/// Runs and guards the command, if this process is to be a guardian.
pub(crate) fn main() -> Option<Exit> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let mut number = || arguments.next()?.to_str()?.parse().ok();
    let grace = Duration::from_millis(number()?);
    let valid_until = Duration::from_millis(number()?);
    let group = number()?.try_into().ok()?;
    let ignored = Ignored(number()?);
    let command = arguments.collect();
    match Guard::start(grace, valid_until, group, ignored, command) {
        Ok(guard) => {
            guard.run();
            Some(Exit::Ok)
        }
        Err(error) => {
            let exit = Exit::Internal;
            let report = format!("failed {} the guardian: {error}\n", exit.code());
            let _ = rustix::io::write(io::stdin(), report.as_bytes());
            Some(exit)
        }
    }
}

struct Guard {
    program: UnixStream,
    events: Receiver<Event>,
    grace: Duration,
    family: Family,
    /// Until when the lock is valid, as the program has said last.
    valid_until: Duration,
    /// The same when the command was stopped: a command that stays stopped does not keep its lock.
    stopped_until: Option<Duration>,
    ending: Option<Ending>,
    /// Whether the guardian has told the command to end, and not the program.
    has_told: bool,
}

enum Event {
    Line(String),
    ProgramGone,
    Child,
}

#[derive(Clone, Copy)]
struct Ending {
    kill_at: Duration,
    /// The command has ended by itself, so daemons stay.
    is_of_session: bool,
    is_killed: bool,
}

impl Ending {
    const fn new(kill_at: Duration, is_of_session: bool) -> Self {
        Self {
            kill_at,
            is_of_session,
            is_killed: false,
        }
    }
}

impl Guard {
    fn start(
        grace: Duration,
        valid_until: Duration,
        group: i32,
        ignored: Ignored,
        mut command: Vec<OsString>,
    ) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            nix::sys::prctl::set_child_subreaper(true)?;
            nix::sys::prctl::set_name(c"redlock-guard")?;
        }
        let program = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let input = receive_input(&program)?;
        let (sender, events) = mpsc::channel();
        let signals = sender.clone();
        // Signals that would end this process are caught, and left to the program.
        signals::listen(move |_| signals.send(Event::Child).is_ok())?;
        let lines = BufReader::new(program.try_clone()?).lines();
        thread::Builder::new().spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(Event::Line(line)).is_err() {
                    return;
                }
            }
            let _ = sender.send(Event::ProgramGone);
        })?;
        let mut guard = Self {
            program,
            events,
            grace,
            family: Family::default(),
            valid_until,
            stopped_until: None,
            ending: None,
            has_told: false,
        };
        let name = command.first().cloned().unwrap_or_default();
        if ignored.has(Signal::CHILD) && knows_ignoring() {
            command.splice(0..0, IGNORING.map(OsString::from));
        }
        match spawn(&command, group, &input, ignored) {
            Ok(pid) => {
                guard.family.command = Some(pid);
                guard.report(format_args!("started {}", pid.as_raw_nonzero()));
            }
            Err(error) => {
                let exit = match error.kind() {
                    io::ErrorKind::NotFound => Exit::NotFound,
                    _ => Exit::NotExecutable,
                };
                let name = name.display();
                guard.report(format_args!("failed {} {name}: {error}", exit.code()));
            }
        }
        Ok(guard)
    }

    /// Returns when all that is to end has ended.
    fn run(mut self) {
        while self.reap() && !self.is_over() {
            match self.events.recv_timeout(self.until_next_look()) {
                Ok(Event::Line(line)) => self.handle(&line),
                Ok(Event::Child) => {} // `reap` looks
                Ok(Event::ProgramGone) if self.is_ending_all() => {}
                Ok(Event::ProgramGone) => {
                    say("the program was killed, so the command is ended");
                    let grace = now() + self.grace;
                    self.end_all(grace.min(self.valid_until));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return, // both threads have panicked
            }
            self.look();
        }
        self.report("done");
    }

    /// Says something to the program. An error means that it is gone.
    fn report(&mut self, report: impl Display) {
        let _ = self.program.write_all(format!("{report}\n").as_bytes());
    }

    /// Does what the program says.
    fn handle(&mut self, line: &str) {
        let Some((word, millis)) = line.split_once(' ') else {
            return;
        };
        let Ok(time) = millis.parse().map(Duration::from_millis) else {
            return;
        };
        match word {
            "valid" => self.valid_until = time,
            // The program has told all to end.
            "end" => self.ending = Some(Ending::new(time, false)),
            _ => {}
        }
    }

    fn valid_until(&self) -> Duration {
        self.stopped_until.unwrap_or(self.valid_until)
    }

    /// Returns when to end the command, if the program does not.
    fn begin_at(&self) -> Duration {
        let slack = SLACK.min(self.grace / 4);
        self.valid_until().saturating_sub(self.grace - slack)
    }

    fn until_next_look(&self) -> Duration {
        let until = |time: Duration| time.saturating_sub(now());
        match self.ending {
            None => until(self.begin_at()).min(LONGEST_SLEEP),
            Some(ending) if ending.is_killed => LOOK_EVERY,
            Some(ending) => until(ending.kill_at).min(LOOK_EVERY),
        }
    }

    fn is_ending_all(&self) -> bool {
        self.ending.is_some_and(|it| !it.is_of_session)
    }

    fn look(&mut self) {
        let now = now();
        if !self.is_ending_all() && now >= self.begin_at() {
            self.has_told = true;
            self.end_all(self.valid_until());
        }
        if let Some(ending) = self.ending
            && now >= ending.kill_at
        {
            send(&self.left(ending), Signal::KILL);
            self.ending = Some(Ending {
                is_killed: true,
                ..ending
            });
        }
    }

    fn end_all(&mut self, kill_at: Duration) {
        ask_to_end(&self.family.members());
        self.ending = Some(Ending::new(kill_at, false));
    }

    fn left(&self, ending: Ending) -> Vec<Pid> {
        if ending.is_of_session {
            self.family.in_session()
        } else {
            self.family.members()
        }
    }

    fn is_over(&self) -> bool {
        let Some(ending) = self.ending else {
            return false;
        };
        // The end of the command is reported before.
        let are_gone = self.family.command.is_none() && self.left(ending).is_empty();
        are_gone || now() > ending.kill_at + LAST_WAIT
    }

    /// Learns of children that have ended or stopped, orphans too. Returns whether there are any.
    fn reap(&mut self) -> bool {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        loop {
            match wait(options) {
                Ok(Some((pid, status))) if Some(pid) == self.family.command => {
                    self.handle_command(status);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn handle_command(&mut self, status: WaitStatus) {
        if status.stopped() {
            let left = self.valid_until.saturating_sub(now()).as_secs_f64();
            if io::stderr().is_terminal() {
                say(&format!(
                    "the command is stopped: unless it goes on, it ends with its lock in {left:.1} s"
                ));
            }
            self.stopped_until = Some(self.valid_until);
        } else if status.continued() {
            self.stopped_until = None;
        } else {
            let end = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("code {code}"),
                (None, signal) => format!("signal {}", signal.unwrap_or_default()),
            };
            let told = if self.has_told { TOLD } else { "-" };
            self.report(format_args!("ended {end} {told}"));
            self.family.command = None;
            self.stopped_until = None;
            if self.ending.is_none() {
                ask_to_end(&self.family.in_session());
                self.ending = Some(Ending::new(now() + self.grace, true));
            }
        }
    }
}

/// Has a command ignore SIGCHLD. The guardian cannot do so without unsafe code, and must not ignore the signal itself.
const IGNORING: [&str; 2] = ["env", "--ignore-signal=CHLD"];

/// Returns whether the system's `env` has the option. That of `busybox` does not.
fn knows_ignoring() -> bool {
    let [env, option] = IGNORING;
    let mut probe = Command::new(env);
    probe.args([option, "true"]).stdin(Stdio::null());
    let status = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|it| it.success())
}

/// Starts the command in the process group of the program. It ignores SIGPIPE if the program was started so, which `Command`
/// of the standard library prevents.
fn spawn(command: &[OsString], group: i32, input: &OwnedFd, ignored: Ignored) -> io::Result<Pid> {
    let mut actions = PosixSpawnFileActions::init()?;
    actions.add_dup2(input.as_raw_fd(), io::stdin().as_raw_fd())?;
    let mut attributes = PosixSpawnAttr::init()?;
    let mut flags = PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
    let mut defaults = SigSet::empty();
    if !ignored.has(Signal::PIPE) {
        defaults.add(signal::Signal::SIGPIPE);
    }
    attributes.set_sigdefault(&defaults)?;
    if group != 0 {
        attributes.set_pgroup(unistd::Pid::from_raw(group))?;
        flags |= PosixSpawnFlags::POSIX_SPAWN_SETPGROUP;
    }
    attributes.set_flags(flags)?;
    let variables = env::vars_os().map(|(name, value)| {
        let parts = [name.as_bytes(), b"=", value.as_bytes()];
        CString::new(parts.concat())
    });
    let variables = variables.collect::<Result<Vec<_>, _>>()?;
    let words = command.iter().map(|it| CString::new(it.as_bytes()));
    let mut words = words.collect::<Result<Vec<_>, _>>()?;
    let start = |words: &[CString]| {
        let program = words.first().ok_or(errno::Errno::EINVAL)?;
        posix_spawnp(program, &actions, &attributes, words, &variables)
    };
    let mut started = start(&words);
    // A script without a first line that names its shell, as `execvp` starts it.
    if started == Err(errno::Errno::ENOEXEC) {
        words.insert(0, c"/bin/sh".into());
        started = start(&words);
    }
    Pid::from_raw(started?.as_raw()).ok_or_else(|| io::ErrorKind::Other.into())
}

fn receive_input(program: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut received = RecvAncillaryBuffer::new(&mut space);
    // No more, since lines follow.
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    recvmsg(program, &mut bytes, &mut received, RecvFlags::empty())?;
    let input = received.drain().find_map(|it| match it {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let input = input.ok_or(io::ErrorKind::UnexpectedEof)?;
    fcntl_setfd(&input, FdFlags::CLOEXEC)?;
    Ok(input)
}

/// Writes a line, unless this would stop the guardian, or keep it waiting for long.
fn say(text: &str) {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    // The shell may be writing to the terminal at this moment. A terminal that was stopped may stay so.
    let is_ready = poll(&mut ready, PollTimeout::from(SAY_WITHIN)).is_ok_and(|it| it > 0);
    let mut stops = SigSet::empty();
    stops.add(signal::Signal::SIGTTOU);
    if is_ready && stops.thread_block().is_ok() {
        // At once, since a shell may write too.
        let _ = stderr
            .lock()
            .write_all(format!("redlock: {text}\n").as_bytes());
        let _ = stops.thread_unblock();
    }
}
