//! The program on a terminal.

use crate::process::{Bed, Ended};

#[test]
fn a_wait_shows_who_has_the_lock_and_leaves_no_trace() {
    let bed = Bed::new();
    let _holder = bed.holder("--client-name job-1");
    let line = bed.on_terminal("redlock run --wait 2s k -- true");
    let ended = line.ends(75).says("waiting for k for");
    let shown = ended.says(": held by job-1 for another ").out;
    let (_, end) = shown.rsplit_once("\r\x1b[K").expect("the line is removed");
    let refusal = "redlock: k is taken: held by job-1";
    assert!(end.starts_with(refusal), "{end}");
    // Not in a file, and not if it is to be quiet.
    let plain = bed.run("--wait 1s", "true");
    plain.ends(75).says_nothing_of("waiting");
    let quiet = bed.on_terminal("redlock run --quiet --wait 1s k -- true");
    quiet.ends(75).says_nothing_of("waiting");
}

#[test]
fn colours_are_for_terminals() {
    let bed = Bed::new();
    let colored = |ended: Ended| ended.out.contains("\x1b[32m");
    let on_terminal = |line| bed.on_terminal(line).ends(0);
    assert!(colored(on_terminal("redlock nodes")));
    assert!(!colored(on_terminal("NO_COLOR=1 redlock nodes")));
    assert!(!colored(on_terminal("redlock nodes --json")));
    assert!(!colored(bed.redlock("nodes").ends(0)));
    assert!(colored(bed.redlock("nodes --color always").ends(0)));
}

#[test]
fn the_command_has_the_terminal_and_gives_it_back() {
    let bed = Bed::new();
    // A process that is not in the foreground is stopped when it reads. The second `stty` would hang.
    let line = "redlock run k -- sh -c 'stty size; stty -echo; stty echo; echo done'; stty echo; echo after";
    bed.on_terminal(line).ends(0).says("done").says("after");
}
