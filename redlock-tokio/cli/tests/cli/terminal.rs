//! The program on a terminal.

use std::process::{Output, Stdio};

use crate::process::{Bed, PROGRAM, Pid, text};

/// Runs a line of the shell on a terminal of its own.
fn on_terminal(bed: &Bed, line: &str) -> Output {
    let line = line.replace("redlock", &format!("{PROGRAM} --node-timeout 500ms"));
    let mut command = bed.on_terminal(&line);
    command
        .env("REDLOCK_CLIENT_NAME", "web-3")
        .env_remove("NO_COLOR");
    command.stdin(Stdio::null());
    command.output().expect("apt-get install bsdutils")
}

#[test]
fn a_wait_shows_who_has_the_lock_and_leaves_no_trace() {
    let bed = Bed::new();
    let mut holder = bed.holder("--client-name job-1");
    let output = on_terminal(&bed, "redlock run --wait 2s k -- true");
    assert_eq!(output.status.code(), Some(75));
    let shown = text(&output.stdout);
    assert!(shown.contains("waiting for k for"), "{shown}");
    assert!(shown.contains(": held by job-1 for another "), "{shown}");
    let (_, end) = shown.rsplit_once("\r\x1b[K").expect("the line is removed");
    let refusal = "redlock: k is taken: held by job-1";
    assert!(end.starts_with(refusal), "{end}");
    // Not in a file, and not if it is to be quiet.
    let plain = bed.run("--wait 1s", "true").output().unwrap();
    assert!(!text(&plain.stderr).contains("waiting"));
    let quiet = on_terminal(&bed, "redlock run --quiet --wait 1s k -- true");
    assert!(!text(&quiet.stdout).contains("waiting"));
    Pid::of(&holder).signal("TERM");
    holder.wait().unwrap();
}

#[test]
fn colours_are_for_terminals() {
    let bed = Bed::new();
    let colored = |output: Output| text(&output.stdout).contains("\x1b[32m");
    assert!(colored(on_terminal(&bed, "redlock nodes")));
    assert!(!colored(on_terminal(&bed, "NO_COLOR=1 redlock nodes")));
    assert!(!colored(on_terminal(&bed, "redlock nodes --json")));
    assert!(!colored(bed.output("nodes")));
    assert!(colored(bed.output("nodes --color always")));
}

#[test]
fn the_command_has_the_terminal_and_gives_it_back() {
    let bed = Bed::new();
    // A process that is not in the foreground is stopped when it reads. The second `stty` would hang.
    let line = "redlock run k -- sh -c 'stty size; stty -echo; stty echo; echo done'; stty echo; echo after";
    let output = on_terminal(&bed, line);
    let shown = text(&output.stdout);
    assert!(shown.contains("done") && shown.contains("after"), "{shown}");
}
