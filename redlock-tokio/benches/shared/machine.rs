use std::{env, fmt, fs, process::Command, thread};

/// Where figures come from, without which they mean nothing.
pub(crate) struct Machine {
    pub(crate) cores: usize,
    /// How many threads wanted to run in the minute before: the load of other work.
    load: Option<f64>,
    pub(crate) redis: String,
    pub(crate) commit: String,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let server = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let dirty = output("git", &["status", "--porcelain", "--untracked-files=no"])
            .is_some_and(|changes| !changes.is_empty());
        let commit = output("git", &["rev-parse", "--short=10", "HEAD"]);
        Self {
            cores: thread::available_parallelism().map_or(0, usize::from),
            load: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split_whitespace().next()?.parse().ok()),
            redis: output(&server, &["--version"])
                .and_then(|text| {
                    text.split_whitespace()
                        .nth(2)?
                        .strip_prefix("v=")
                        .map(str::to_owned)
                })
                .unwrap_or_else(unknown),
            commit: commit.map_or_else(unknown, |it| it + if dirty { "+changes" } else { "" }),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cores,
            load,
            redis,
            commit,
        } = self;
        let (os, arch) = (env::consts::OS, env::consts::ARCH);
        let is_debug = cfg!(debug_assertions);
        let profile = if is_debug { "debug" } else { "release" };
        let load = load.map_or_else(unknown, |it| it.to_string());
        write!(
            f,
            "{cores} cores, {os} {arch}, load {load} before, Redis {redis}, commit {commit}, {profile}"
        )
    }
}

fn unknown() -> String {
    "unknown".into()
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
