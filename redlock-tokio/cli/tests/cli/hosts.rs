//! Jobs that one host of several is to run.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::process::{Bed, code, text, wait_for};

#[test]
fn a_host_that_comes_after_a_short_job_does_not_run_it_again() {
    let bed = Bed::new();
    for (script, ended) in [("echo ran >> ran", 0), ("echo ran >> ran; exit 3", 3)] {
        let key = format!("--prefix {ended}:");
        let host = || {
            let options = format!("{key} -w 100ms --keep-for 9s");
            bed.run(&options, script).output().unwrap()
        };
        assert_eq!(code(&host()), ended);
        let second = host();
        let refusal = text(&second.stderr);
        assert_eq!(code(&second), 75, "{refusal}");
        assert!(refusal.contains("is taken: held by"), "{refusal}");
        let ran = fs::read_to_string(bed.path("ran")).unwrap();
        assert_eq!(ran, "ran\n");
        fs::remove_file(bed.path("ran")).unwrap();
    }
}

#[test]
fn a_kept_lock_ends_when_its_time_is_over_however_long_the_job_took() {
    let bed = Bed::new();
    let begin = Instant::now();
    let mut first = bed.run("--ttl 2s --keep-for 4s", "sleep 1");
    let first = first.output().unwrap();
    assert_eq!(code(&first), 0, "{}", text(&first.stderr));
    assert_eq!(code(&bed.run("-w 20s", "true").output().unwrap()), 0);
    let kept = begin.elapsed();
    assert!(kept >= Duration::from_secs(4), "{kept:?}");
    // A job that took longer than that frees its lock at once.
    let long = bed.run("--keep-for 100ms", "sleep 0.2").output().unwrap();
    assert_eq!(code(&long), 0);
    assert_eq!(code(&bed.run("-n", "true").output().unwrap()), 0);
}

#[test]
fn a_job_that_was_not_begun_is_left_to_others() {
    let bed = Bed::new();
    let mut job = bed.redlock("run --keep-for 9s k -- /no/such/command");
    assert_eq!(code(&job.output().unwrap()), 127);
    assert_eq!(code(&bed.run("-n", "true").output().unwrap()), 0);
    // No node would remember it for so long.
    let refused = bed.run("--keep-for 60s", "echo > ran").output().unwrap();
    let refusal = text(&refused.stderr);
    assert_eq!(code(&refused), 64, "{refusal}");
    assert!(refusal.contains("needs a --max-ttl of 60.6"), "{refusal}");
    assert!(!bed.path("ran").exists());
    let long = bed.run("--keep-for 60s --max-ttl 61s", "true").output();
    assert_eq!(code(&long.unwrap()), 0);
}

#[test]
fn a_writer_keeps_new_readers_out_while_it_waits() {
    let bed = Bed::new();
    let script = "echo > reads; while ! [ -e end ]; do sleep 0.01; done";
    let mut reader = bed.run("-s", script).spawn().unwrap();
    bed.trace("reads");
    let mut other = bed.run("-s -n", "true");
    assert_eq!(code(&other.output().unwrap()), 0, "readers share it");
    let mut writer = bed.run("--writer", "echo > wrote").spawn().unwrap();
    wait_for("the mark of the writer", || {
        let seen = bed.output("inspect k --json");
        let seen: Value = serde_json::from_slice(&seen.stdout).ok()?;
        (seen["waiting_writer"] == true).then_some(())
    });
    let later = code(&other.output().unwrap());
    assert_eq!(later, 75, "it comes after the writer");
    assert!(!bed.path("wrote").exists());
    fs::write(bed.path("end"), "").unwrap();
    assert_eq!(reader.wait().unwrap().code(), Some(0));
    assert_eq!(writer.wait().unwrap().code(), Some(0));
    assert!(bed.path("wrote").exists());
}
