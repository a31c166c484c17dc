//! Lock libraries of other languages, fetched once by their own package managers, in fixed versions.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
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
    let folder = install("npm", |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]);
        npm.args(["--fetch-retries=0", "--fetch-timeout=30000"]);
        npm.arg("--prefix").arg(folder).args(NPM);
        npm
    })?;
    Ok(folder.join("node_modules"))
}

/// Returns the command that runs a script of this package, whose language its name tells.
pub(crate) fn script(path: &str) -> Result<Command> {
    let (program, variable, packages) = if path.ends_with(".py") {
        ("python3", "PYTHONPATH", pip()?)
    } else {
        ("node", "NODE_PATH", npm()?)
    };
    let mut command = Command::new(program);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
    command.env(variable, packages);
    Ok(command)
}

/// Returns the folder in which `import` finds the packages from pip.
fn pip() -> Result<PathBuf> {
    install("pip", |folder| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", PIP]);
        pip.args(["--retries=0", "--timeout=30", "--target"])
            .arg(folder);
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
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let mut errors = said.lines().filter(|it| it.contains("rror"));
    let first = errors.next().unwrap_or_default();
    Err(format!("{name}: {}: {first}", output.status).into())
}
