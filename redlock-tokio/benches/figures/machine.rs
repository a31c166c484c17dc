use std::{env, fs, process::Command, thread};

/// Returns where figures come from, without which they mean nothing.
pub(crate) fn look() -> String {
    let server = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    // How many threads wanted to run in the minute before: the load of other work.
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("unknown");
    let version = output(&server, &["--version"]);
    let mut words = version.split_whitespace();
    let redis = words
        .find_map(|it| it.strip_prefix("v="))
        .unwrap_or("unknown");
    let commit = output(
        "git",
        &["describe", "--always", "--abbrev=10", "--dirty=+changes"],
    );
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let (os, arch) = (env::consts::OS, env::consts::ARCH);
    let is_debug = cfg!(debug_assertions);
    let profile = if is_debug { "debug" } else { "release" };
    format!(
        "{cores} cores, {os} {arch}, load {load} before, Redis {redis}, commit {commit}, {profile}"
    )
}

/// Returns what a program says, or that it says nothing.
fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.ok().filter(|it| it.status.success());
    let text = output.and_then(|it| String::from_utf8(it.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |it| it.trim().to_owned())
}
