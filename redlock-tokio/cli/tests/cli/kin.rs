//! All that stems from a command ends with the lock, even under another parent, and nothing else does.

use std::{
    fs,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::{Signal, kill};

use crate::process::{Bed, PROGRAM, Pid, end_of, text, wait_for};

/// A command that writes its id, and does not end when it is told to.
fn defies(name: &str) -> String {
    format!("sh -c 'trap \"\" TERM; echo $$ > {name}; while :; do sleep 0.01; done'")
}

#[test]
fn no_descendant_goes_on_beside_the_next_holder() {
    let bed = Bed::new();
    let inner = format!("{PROGRAM} --node-timeout 500ms run --grace 5s inner --");
    // Each has a group of its own, the second a session, and the third a guardian with a longer grace.
    let starters = ["timeout 60", "setsid", &inner];
    let names = ["timeout", "setsid", "inner"];
    let started = starters.iter().zip(names);
    let mut script: String = started
        .map(|(starter, name)| format!("{starter} {} & ", defies(name)))
        .collect();
    script += "wait";
    for signal in ["KILL", "STOP"] {
        // The drift allowance, a hundredth of the ttl, is the time that a guardian on a busy machine may be late.
        let mut program = bed.run("--ttl 10s --grace 500ms", &script).spawn().unwrap();
        let commands = names.map(|it| bed.pid(it));
        Pid::of(&program).signal(signal);
        bed.get_lock();
        let left: Vec<_> = commands.iter().filter(|it| it.runs()).collect();
        assert!(left.is_empty(), "{signal}: {left:?} of {commands:?}");
        if signal == "STOP" {
            Pid::of(&program).signal("CONT");
            assert_eq!(end_of(&mut program), Some(76));
        }
        program.wait().unwrap();
        for name in names {
            fs::remove_file(bed.path(name)).unwrap();
        }
    }
}

#[test]
fn what_the_command_leaves_in_its_session_ends_with_it_and_a_daemon_does_not() {
    let bed = Bed::new();
    let daemon = "setsid sh -c 'echo $$ > daemon; exec sleep 3' > /dev/null 2>&1 &";
    let left = "sleep 60 & echo $! > left; timeout 60 sh -c 'echo $$ > timeout; exec sleep 59' &";
    let script =
        format!("{left} {daemon} while ! [ -s daemon -a -s timeout ]; do sleep 0.01; done; exit 6");
    let mut program = bed.run("--grace 300ms", &script).spawn().unwrap();
    assert_eq!(end_of(&mut program), Some(6));
    assert!(!bed.pid("left").runs() && !bed.pid("timeout").runs());
    assert!(bed.pid("daemon").runs(), "a daemon is on its own");
}

#[test]
fn a_child_of_the_shell_that_became_the_program_goes_on() {
    let bed = Bed::new();
    let inner = bed.run("--grace 200ms", "echo > begun; exec sleep 60");
    let shell = "sleep 60 & echo $! > other; exec \"$@\"";
    let mut command = bed.by(&["sh", "-c", shell, "sh"], &inner);
    for is_killed in [true, false] {
        let mut program = command.spawn().unwrap();
        bed.trace("begun");
        let other = bed.pid("other");
        if is_killed {
            Pid::of(&program).guardian().signal("KILL");
        } else {
            assert_eq!(bed.code_of("unlock k --yes"), 0);
        }
        assert_eq!(end_of(&mut program), Some(76));
        assert!(other.runs(), "guardian killed: {is_killed}");
        other.signal("KILL");
        fs::remove_file(bed.path("begun")).unwrap();
        fs::remove_file(bed.path("other")).unwrap();
    }
}

#[test]
fn the_program_ends_the_command_itself_if_the_guardian_is_stopped() {
    let bed = Bed::new();
    for is_taken_away in [true, false] {
        let options = "--ttl 2s --grace 500ms";
        let mut program = bed.run(options, &defies("pid")).spawn().unwrap();
        let command = bed.pid("pid");
        let guardian = nix::unistd::Pid::from_raw(Pid::of(&program).guardian().0);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // However often it is continued.
                while !is_over.load(Ordering::Relaxed) && kill(guardian, Signal::SIGSTOP).is_ok() {
                    thread::yield_now();
                }
            });
            if is_taken_away {
                assert_eq!(bed.code_of("unlock k --yes"), 0);
            } else {
                bed.servers.get(0).freeze();
                bed.servers.get(1).freeze();
            }
            let limit = Instant::now() + Duration::from_secs(20);
            while program.try_wait().unwrap().is_none() && Instant::now() < limit {
                thread::sleep(Duration::from_millis(5));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(!command.runs(), "taken away: {is_taken_away}");
        assert_eq!(end_of(&mut program), Some(76));
        bed.servers.get(0).thaw();
        bed.servers.get(1).thaw();
        fs::remove_file(bed.path("pid")).unwrap();
    }
}

#[test]
fn a_killed_guardian_ends_the_command_with_its_grace() {
    let bed = Bed::new();
    let script = "trap 'echo > told; sleep 60' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let mut program = bed.run("--grace 1s", script);
    let mut program = program.stderr(Stdio::piped()).spawn().unwrap();
    let command = bed.pid("pid");
    Pid::of(&program).guardian().signal("KILL");
    bed.trace("told");
    assert_eq!(end_of(&mut program), Some(76));
    assert!(!command.runs());
    let output = program.wait_with_output().unwrap();
    let shown = text(&output.stderr);
    assert!(shown.contains("guardian"), "{shown}");
}

/// This one gets no standard input for the command.
#[test]
fn a_guardian_that_cannot_start_says_why() {
    let (mut program, theirs) = UnixStream::pair().unwrap();
    let mut guardian = Command::new(PROGRAM);
    guardian.args(["--guardian", "1000", "1000", "0", "true"]);
    let mut started = guardian.stdin(OwnedFd::from(theirs)).spawn().unwrap();
    drop(guardian);
    program.write_all(b"\n").unwrap();
    assert_eq!(end_of(&mut started), Some(70));
    let mut report = String::new();
    program.read_to_string(&mut report).unwrap();
    assert!(report.starts_with("failed 70 the guardian: "), "{report}");
}

#[test]
fn a_program_that_is_replaced_on_disk_goes_on() {
    let bed = Bed::new();
    let copy = bed.path("redlock");
    // By a process of its own: one of another test might inherit an open file, which could not be executed.
    let copied = Command::new("cp").arg(PROGRAM).arg(&copy).status().unwrap();
    assert!(copied.success());
    let mut holder = bed.holder("");
    let mut waiting = ["run", "elect"].map(|name| {
        let mut command = Command::new(&copy);
        command.args(["--node-timeout", "500ms", name, "k", "--", "true"]);
        command.env("REDLOCK_NODES", bed.servers.urls().join(","));
        command.env("REDLOCK_DURABILITY", "fsync-always");
        command.spawn().unwrap()
    });
    fs::write(bed.path("new"), "not a program").unwrap();
    fs::rename(bed.path("new"), &copy).unwrap();
    Pid::of(&holder).signal("TERM");
    assert_eq!(end_of(&mut holder), Some(143));
    for program in &mut waiting {
        assert_eq!(end_of(program), Some(0));
    }
}

#[test]
fn process_1_of_a_container_reaps_zombies_which_keep_no_lock() {
    let bed = Bed::new();
    // Of two orphans one ends before the command does, and one with it.
    let script =
        "(sleep 0.2 & echo $! > early); (sleep 60 & echo $! > late); sleep 1; echo $$ > pid";
    let inner = bed.run("--max-ttl 60s --ttl 60s --grace 29s", script);
    let is_root = nix::unistd::Uid::effective().is_root();
    let sudo = ["sudo", "--non-interactive", "--preserve-env"];
    let container = ["unshare", "--pid", "--fork", "--mount-proc"];
    let rights = if is_root { &[][..] } else { &sudo };
    let starter = [rights, &container].concat();
    let mut program = bed.by(&starter, &inner).spawn().unwrap();
    let ended = wait_for("the end of process 1", || program.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}
