//! Lock libraries of other languages, fetched once by their own package managers, in fixed versions.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use crate::Result;

const NPM: [&str; 3] = [
    "redlock@5.0.0-beta.2",
    "ioredis@5.4.1",
    "redis-semaphore@5.6.2",
];
const PIP: &str = "redis==5.2.1";

/// Returns the folder in which `require` finds the packages from npm.
pub(crate) fn npm() -> Result<PathBuf> {
    let folder = folder("npm")?;
    let modules = folder.join("node_modules");
    if !modules.join("redis-semaphore").exists() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]);
        run(npm.arg("--prefix").arg(&folder).args(NPM))?;
    }
    Ok(modules)
}

/// Returns the folder in which `import` finds the packages from pip.
pub(crate) fn pip() -> Result<PathBuf> {
    let folder = folder("pip")?;
    if !folder.join("redis").exists() {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", PIP]);
        run(pip.arg("--target").arg(&folder))?;
    }
    Ok(folder)
}

/// In the target directory, in which this program is `release/deps/contention-..`.
fn folder(name: &str) -> Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(3).ok_or("no target directory")?;
    let folder = target.join("pollers").join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let Output { status, stderr, .. } = output.map_err(|error| format!("{program}: {error}"))?;
    if status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&stderr);
    let last = stderr.lines().last().unwrap_or_default();
    Err(format!("{program}: {status}: {last}").into())
}
