//! Lock libraries of other languages, fetched once by their own package managers, in fixed versions.

use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::Result;

const NPM: [&str; 3] = [
    "redlock@5.0.0-beta.2",
    "ioredis@5.4.1",
    "redis-semaphore@5.6.2",
];
const PIP: &str = "redis==5.2.1";

/// How long a package manager may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the folder in which `require` finds the packages from npm.
pub(crate) fn npm() -> Result<PathBuf> {
    let folder = install("npm", |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]);
        npm.arg("--fetch-retries=0");
        npm.arg("--prefix").arg(folder).args(NPM);
        npm
    })?;
    Ok(folder.join("node_modules"))
}

/// Returns the folder in which `import` finds the packages from pip.
pub(crate) fn pip() -> Result<PathBuf> {
    install("pip", |folder| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", PIP]);
        pip.arg("--retries=0").arg("--target").arg(folder);
        pip
    })
}

/// Returns the folder of this name, which the command fills if it is not there yet.
fn install(name: &str, command: impl FnOnce(&Path) -> Command) -> Result<PathBuf> {
    let program = env::current_exe()?;
    // The program is in `deps`, in the folder of its profile.
    let target = program.ancestors().nth(3).ok_or("no target directory")?;
    let all = target.join("foreign");
    let folder = all.join(name);
    if folder.exists() {
        return Ok(folder);
    }
    // Another program may do the same now, and a command that fails leaves a part of the files.
    let draft = all.join(format!("{name}-{}", process::id()));
    fs::create_dir_all(&draft)?;
    let outcome = run(&mut command(&draft));
    if outcome.is_ok() {
        // This fails if another program was faster.
        let _ = fs::rename(&draft, &folder);
    }
    // This fails if the folder was moved.
    let _ = fs::remove_dir_all(&draft);
    outcome?;
    Ok(folder)
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let started = command.stderr(Stdio::piped()).spawn();
    let mut process = started.map_err(|error| format!("{name}: {error}"))?;
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match process.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
            None => {
                process.kill()?;
                process.wait()?;
                return Err(format!("{name} took longer than {LIMIT:?}").into());
            }
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    process
        .stderr
        .take()
        .ok_or("it was piped")?
        .read_to_string(&mut said)?;
    let mut errors = said.lines().filter(|it| it.contains("rror"));
    let first = errors.next().unwrap_or_default();
    Err(format!("{name}: {status}: {first}").into())
}
