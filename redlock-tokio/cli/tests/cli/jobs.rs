//! The program as a job: of a shell on a terminal, and in the background, as `flock`, `timeout` and `nohup` taught.

use std::{
    fs,
    io::Write,
    process::{ChildStdin, Command, Stdio},
};

use crate::process::{Bed, Pid, Running, typed, wait_for};

/// A shell on a terminal of its own, with a keyboard. The terminal is gone with it, and its jobs with the terminal.
struct Shell {
    process: Running,
    keyboard: ChildStdin,
}

impl Shell {
    fn start(bed: &Bed) -> Self {
        let mut shell = bed.on_terminal("bash --norc --noprofile --noediting -i");
        shell.0.stdin(Stdio::piped());
        let mut process = shell.start();
        let keyboard = process.child.stdin.take().unwrap();
        Self { process, keyboard }
    }

    /// Presses keys: Ctrl-C is `\x03`, and Ctrl-Z is `\x1a`.
    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line, in which `redlock` is the program.
    fn line(&mut self, line: &str) {
        self.press(&(typed(line) + "\n"));
    }

    /// Ends once the shell says that its last command has ended with this code.
    fn ends_after(mut self, code: u8) {
        self.line("echo code=$?");
        self.process.says(&format!("code={code}"));
        self.end();
    }

    fn end(mut self) {
        self.press("exit\n");
        self.process.status();
    }
}

#[test]
fn a_job_that_was_stopped_goes_on_in_the_foreground_if_its_lock_is_valid() {
    let bed = Bed::new();
    // The first one has no terminal to read from. The second one tells the person at the terminal, too.
    for (place, key, said) in [
        (" &", "", ""),
        ("", "\x1a", "redlock: the command is stopped"),
    ] {
        let mut shell = Shell::start(&bed);
        // The shell must know that its job has stopped, which it says at once with -b.
        shell.line("set -b");
        let script = "echo > begun; read line; echo got $line";
        shell.line(&format!("redlock run k -- sh -c '{script}'{place}"));
        bed.trace("begun");
        shell.press(key);
        shell.process.says("Stopped");
        shell.process.says(said);
        shell.line("fg");
        shell.line("a word");
        shell.process.says("got a word");
        shell.ends_after(0);
        bed.remove(["begun"]);
    }
}

#[test]
fn a_stopped_command_ends_with_its_lock_and_when_the_program_is_told_to() {
    let bed = Bed::new();
    let start_stopped = |options: &str| {
        let program = bed.run(options, "echo $$ > pid; kill -STOP $$").start();
        let command = bed.pid("pid");
        wait_for("the stop", || command.state().filter(|it| it.0 == 'T'));
        bed.remove(["pid"]);
        program
    };
    let program = start_stopped("");
    program.pid().signal("TERM");
    program.ends(143);
    let program = start_stopped("--ttl 2s --grace 500ms");
    bed.run("--wait 20s", "true").ends(0);
    program.ends(76).says("stopped");
}

#[test]
fn ignored_signals_stay_ignored() {
    let bed = Bed::new();
    let script = "echo $$ > pid; while ! [ -e go ]; do sleep 0.01; done; exit 5";
    // A shell has its background jobs ignore the second and the third.
    for (start, signal) in [
        ("exec nohup", "HUP"),
        ("trap '' INT; exec", "INT"),
        ("trap '' QUIT; exec", "QUIT"),
        ("trap '' USR1; exec", "USR1"),
    ] {
        let inner = bed.run("", script);
        let shell = format!("{start} \"$@\"");
        let program = inner.by(&["sh", "-c", &shell, "sh"]).start();
        let command = bed.pid("pid");
        for process in [program.pid().guardian(), program.pid(), command] {
            process.signal(signal);
        }
        fs::write(bed.path("go"), "").unwrap();
        program.ends(5);
        bed.remove(["go", "pid"]);
    }
}

#[test]
fn the_command_ignores_what_the_program_was_started_to_ignore() {
    let bed = Bed::new();
    // As `systemd` starts it, as a parent that does not wait for its children, and as a shell.
    for signals in [
        "--ignore-signal=PIPE",
        "--ignore-signal=CHLD,HUP",
        "--default-signal",
    ] {
        let script = "grep SigIgn /proc/self/status";
        let plain = Command::new("env")
            .arg(signals)
            .args(script.split(' '))
            .output();
        let plain = String::from_utf8(plain.unwrap().stdout).unwrap();
        let under_lock = bed.redlock(&format!("run k -- {script}"));
        assert_eq!(
            under_lock.by(&["env", signals]).ends(0).out,
            plain,
            "{signals}"
        );
    }
}

#[test]
fn a_signal_from_the_keyboard_comes_once_and_one_from_a_process_too() {
    let bed = Bed::new();
    let mut shell = Shell::start(&bed);
    let script =
        "trap \"echo int >> ints\" INT; echo $PPID > guardian; read line; read line; read line";
    shell.line(&format!("redlock run k -- bash -c '{script}'"));
    let guardian = bed.pid("guardian");
    let count = |expected: usize| {
        wait_for(format_args!("{expected} signals"), || {
            let ints = fs::read_to_string(bed.path("ints")).unwrap_or_default();
            (ints.lines().count() >= expected).then_some(())
        });
    };
    shell.press("\x03");
    count(1);
    // Of a process: the program alone gets it, and passes it on.
    let (_, program) = guardian.state().unwrap();
    Pid(program).signal("INT");
    count(2);
    shell.press("\x03");
    count(3);
    shell.line("\n\n");
    shell.ends_after(0);
    let ints = fs::read_to_string(bed.path("ints")).unwrap();
    assert_eq!(ints, "int\n".repeat(3));
}

#[test]
fn a_key_that_ends_the_command_ends_the_script_around_it() {
    let bed = Bed::new();
    let mut shell = Shell::start(&bed);
    let script =
        "redlock run k -- sh -c \"echo > started; exec sleep 60\"; echo went $((1 + 1)) on";
    shell.line(&format!("bash -c '{script}'"));
    bed.trace("started");
    shell.press("\x03");
    shell.line("echo code=$?");
    shell.process.says("code=130");
    assert!(!shell.process.out().contains("went 2 on"));
    shell.end();
}

#[test]
fn a_script_can_read_after_a_shell_under_the_lock_was_killed() {
    let bed = Bed::new();
    let mut shell = Shell::start(&bed);
    let inner = "redlock run --grace 200ms k -- bash --norc --noprofile --noediting -i";
    shell.line(&format!("sh -c '{inner}; read line; echo got $line'"));
    shell.line("echo > inner");
    bed.trace("inner");
    bed.redlock("unlock k --yes").ends(0);
    shell
        .process
        .says("the lock was lost before the command was done: its keys were deleted");
    shell.line("a word");
    shell.process.says("got a word");
    shell.end();
}
