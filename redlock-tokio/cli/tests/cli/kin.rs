//! All that stems from a command ends with the lock, even under another parent, and nothing else does.

use std::{
    fs,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid},
};

use crate::process::{Bed, PROGRAM, Program, typed};

/// A command that writes its id, and does not end when it is told to.
fn defies(name: &str) -> String {
    format!("sh -c 'trap \"\" TERM; echo $$ > {name}; while :; do sleep 0.01; done'")
}

#[test]
fn no_descendant_goes_on_beside_the_next_holder() {
    let bed = Bed::new();
    let inner = typed("redlock run --grace 5s inner --");
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
        let program = bed.run("--ttl 10s --grace 500ms", &script).start();
        let commands = names.map(|it| bed.pid(it));
        let guardian = program.pid().guardian();
        program.pid().signal(signal);
        bed.run("", "true").ends(0);
        let left: Vec<_> = commands.iter().filter(|it| it.runs()).collect();
        assert!(left.is_empty(), "{signal}: {left:?} of {commands:?}");
        if signal == "STOP" {
            program.pid().signal("CONT");
            program.ends(76);
        }
        guardian.wait_for_end();
        bed.remove(names);
    }
}

#[test]
fn what_the_command_leaves_in_its_session_ends_with_it_and_a_daemon_does_not() {
    let bed = Bed::new();
    let daemon = "setsid sh -c 'echo $$ > daemon; exec sleep 3' > /dev/null 2>&1 &";
    let left = "sleep 60 & echo $! > left; timeout 60 sh -c 'echo $$ > timeout; exec sleep 59' &";
    let script =
        format!("{left} {daemon} while ! [ -s daemon -a -s timeout ]; do sleep 0.01; done; exit 6");
    bed.run("--grace 300ms", &script).ends(6);
    assert!(!bed.pid("left").runs() && !bed.pid("timeout").runs());
    assert!(bed.pid("daemon").runs(), "a daemon is on its own");
}

#[test]
fn without_its_lock_or_its_guardian_a_command_ends_with_its_grace_and_a_sibling_goes_on() {
    let bed = Bed::new();
    // The shell becomes the program, which then has a child of the shell.
    let shell = "sleep 60 & echo $! > sibling; exec \"$@\"";
    let script = "trap 'echo > told; sleep 60' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    for (kills_guardian, reason) in [(true, "guardian"), (false, "deleted")] {
        let inner = bed.run("--grace 1s", script);
        let program = inner.by(&["sh", "-c", shell, "sh"]).start();
        let [command, sibling] = ["pid", "sibling"].map(|it| bed.pid(it));
        if kills_guardian {
            program.pid().guardian().signal("KILL");
        } else {
            bed.redlock("unlock k --yes").ends(0);
        }
        bed.trace("told");
        program.ends(76).says(reason);
        assert!(!command.runs() && sibling.runs(), "{reason}");
        sibling.signal("KILL");
        bed.remove(["pid", "sibling", "told"]);
    }
}

#[test]
fn the_program_ends_the_command_itself_if_the_guardian_is_stopped() {
    let bed = Bed::new();
    for is_taken_away in [true, false] {
        let options = "--ttl 2s --grace 500ms";
        let mut program = bed.run(options, &defies("pid")).start();
        let command = bed.pid("pid");
        let guardian = Pid::from_raw(program.pid().guardian().0);
        let _unlocking = is_taken_away.then(|| bed.redlock("unlock k --yes").start());
        if !is_taken_away {
            bed.servers.get(0).freeze();
            bed.servers.get(1).freeze();
        }
        let limit = Instant::now() + Duration::from_secs(20);
        while program.child.try_wait().unwrap().is_none() && Instant::now() < limit {
            // However often it is continued.
            let _ = kill(guardian, Signal::SIGSTOP);
            thread::yield_now();
        }
        assert!(!command.runs(), "taken away: {is_taken_away}");
        program.ends(76);
        bed.servers.get(0).thaw();
        bed.servers.get(1).thaw();
        bed.remove(["pid"]);
    }
}

/// This one gets no standard input for the command.
#[test]
fn a_guardian_that_cannot_start_says_why() {
    let (mut program, theirs) = UnixStream::pair().unwrap();
    let mut guardian = Command::new(PROGRAM);
    guardian.args(["--guardian", "1000", "1000", "0", "0", "true"]);
    let mut started = guardian.stdin(OwnedFd::from(theirs)).spawn().unwrap();
    drop(guardian);
    program.write_all(b"\n").unwrap();
    assert_eq!(started.wait().unwrap().code(), Some(70));
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
    let holder = bed.holder("");
    let waiting = ["run", "elect"].map(|name| {
        let program = Program::at(&copy, [name, "k", "--", "true"]);
        let program = program.env("REDLOCK_NODES", bed.servers.urls().join(","));
        program.start()
    });
    fs::write(bed.path("new"), "not a program").unwrap();
    fs::rename(bed.path("new"), &copy).unwrap();
    holder.pid().signal("TERM");
    holder.ends(143);
    for program in waiting {
        program.ends(0);
    }
}

#[test]
fn process_1_of_a_container_reaps_zombies_which_keep_no_lock() {
    let bed = Bed::new();
    // Of two orphans one ends before the command does, and one with it.
    let script =
        "(sleep 0.2 & echo $! > early); (sleep 60 & echo $! > late); sleep 1; echo $$ > pid";
    let inner = bed.run("--max-ttl 60s --ttl 60s --grace 29s", script);
    let is_root = Uid::effective().is_root();
    let sudo = ["sudo", "--non-interactive", "--preserve-env"];
    let container = ["unshare", "--pid", "--fork", "--mount-proc"];
    let rights = if is_root { &[][..] } else { &sudo };
    let starter = [rights, &container].concat();
    inner.by(&starter).ends(0);
}
