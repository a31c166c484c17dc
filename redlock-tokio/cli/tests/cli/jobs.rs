//! The program as a job: of a shell on a terminal, and in the background, as `flock`, `timeout` and `nohup` taught.

use std::{
    fs,
    io::{Read, Write},
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use crate::process::{Bed, PROGRAM, Pid, code, end_of, text, wait_for};

/// A shell on a terminal of its own, with a keyboard.
struct Shell {
    process: Child,
    shown: Arc<Mutex<String>>,
}

impl Shell {
    fn start(bed: &Bed) -> Self {
        let mut command = bed.on_terminal("bash --norc --noprofile --noediting -i");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("apt-get install bsdutils");
        let mut output = process.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let all = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                *all.lock().unwrap() += &String::from_utf8_lossy(&bytes[..count]);
            }
        });
        Self { process, shown }
    }

    /// Presses keys: Ctrl-C is `\x03`, and Ctrl-Z is `\x1a`.
    fn press(&mut self, keys: &str) {
        let keyboard = self.process.stdin.as_mut().unwrap();
        keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line, in which `redlock` is the program.
    fn line(&mut self, line: &str) {
        let line = line.replace("redlock", &format!("{PROGRAM} --node-timeout 500ms"));
        self.press(&format!("{line}\n"));
    }

    fn wait_for(&self, expected: &str) {
        let shown = &self.shown;
        wait_for(format_args!("{expected:?} in {shown:?}"), || {
            self.shows(expected).then_some(())
        });
    }

    fn shows(&self, text: &str) -> bool {
        self.shown.lock().unwrap().contains(text)
    }

    /// Ends once the shell says that its last command has ended with this code.
    fn ends_after(mut self, code: u8) {
        self.line("echo code=$?");
        self.wait_for(&format!("code={code}"));
        self.end();
    }

    fn end(mut self) {
        self.press("exit\n");
        end_of(&mut self.process);
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The terminal is gone with it, and its jobs with the terminal.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_background_job_that_reads_goes_on_in_the_foreground() {
    let bed = Bed::new();
    let mut shell = Shell::start(&bed);
    // It has no terminal to read from, and the shell must know that it has stopped, which it says at once with -b.
    shell.line("set -b");
    shell.line("redlock run k -- sh -c 'read line; echo got $line' &");
    shell.wait_for("Stopped");
    shell.line("fg");
    shell.line("a word");
    shell.wait_for("got a word");
    shell.ends_after(0);
}

#[test]
fn a_job_that_was_stopped_goes_on_if_its_lock_is_valid() {
    let bed = Bed::new();
    let mut shell = Shell::start(&bed);
    shell.line("redlock run k -- sh -c 'echo $$ > pid; read line; echo got $line'");
    bed.pid("pid");
    shell.press("\x1a");
    shell.wait_for("Stopped");
    // Of the program, for the person at the terminal.
    shell.wait_for("redlock: the command is stopped");
    shell.line("fg");
    shell.line("a word");
    shell.wait_for("got a word");
    shell.ends_after(0);
}

#[test]
fn a_job_that_stays_stopped_ends_with_its_lock() {
    let bed = Bed::new();
    let mut shell = Shell::start(&bed);
    shell.line("redlock run --ttl 2s --grace 500ms k -- sh -c 'echo $$ > pid; sleep 60; echo no'");
    let command = bed.pid("pid");
    shell.press("\x1a");
    shell.wait_for("Stopped");
    bed.get_lock();
    assert!(!command.runs());
    shell.line("fg");
    shell.ends_after(76);
}

#[test]
fn a_command_that_stays_stopped_ends_with_its_lock() {
    let bed = Bed::new();
    let mut program = bed.run("--ttl 2s --grace 500ms", "echo $$ > pid; kill -STOP $$");
    let mut program = program.stderr(Stdio::piped()).spawn().unwrap();
    bed.pid("pid");
    let next = bed.run("--wait 20s", "true").output().unwrap();
    assert_eq!(code(&next), 0, "{}", text(&next.stderr));
    assert_eq!(end_of(&mut program), Some(76));
    let output = program.wait_with_output().unwrap();
    let shown = text(&output.stderr);
    assert!(shown.contains("stopped"), "{shown}");
}

#[test]
fn a_stopped_command_ends_when_the_program_is_told_to() {
    let bed = Bed::new();
    let mut program = bed.run("", "echo $$ > pid; exec sleep 60").spawn().unwrap();
    let command = bed.pid("pid");
    command.signal("STOP");
    wait_for("the stop", || command.state().filter(|it| it.0 == 'T'));
    Pid::of(&program).signal("TERM");
    assert_eq!(end_of(&mut program), Some(143));
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
        let mut command = bed.by(&["sh", "-c", &shell, "sh"], &inner);
        command.stdout(Stdio::null());
        let mut program = command.spawn().unwrap();
        let command = bed.pid("pid");
        Pid::of(&program).guardian().signal(signal);
        Pid::of(&program).signal(signal);
        command.signal(signal);
        fs::write(bed.path("go"), "").unwrap();
        assert_eq!(end_of(&mut program), Some(5), "{signal}");
        fs::remove_file(bed.path("go")).unwrap();
        fs::remove_file(bed.path("pid")).unwrap();
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
    shell.wait_for("code=130");
    assert!(!shell.shows("went 2 on"));
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
    assert_eq!(bed.code_of("unlock k --yes"), 0);
    shell.wait_for("the lock was lost before the command was done: its keys were deleted");
    shell.line("a word");
    shell.wait_for("got a word");
    shell.end();
}
