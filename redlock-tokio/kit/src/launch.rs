use std::{env, fs, io, net::IpAddr, path::Path, process::Command};

use super::{error::SpawnError, port::Port};

/// The file with the configuration of a sentinel, which the sentinel itself rewrites.
const SENTINEL_FILE: &str = "sentinel.conf";

/// What a process is started as, now and after each restart.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) mode: Mode,
    /// The address that the process connects from, if not the one of its port.
    pub(super) source: Option<IpAddr>,
}

#[derive(Debug)]
pub(super) enum Mode {
    /// A server with more arguments.
    Server(Vec<String>),
    /// A sentinel with these lines in its configuration.
    Sentinel(Vec<String>),
}

impl Mode {
    /// Returns a server of a group, with these arguments, which spaces separate.
    pub(super) fn of_group(arguments: &str, password: Option<&str>) -> Self {
        let common = "--repl-diskless-sync yes --repl-diskless-sync-delay 0";
        let words = [arguments, common].into_iter().flat_map(|it| it.split(' '));
        let secrets = password.map(|it| ["--requirepass", it, "--masterauth", it]);
        let words = words.chain(secrets.into_iter().flatten());
        Self::Server(words.map(str::to_owned).collect())
    }
}

impl Launch {
    /// Writes the files that the process needs at its first start.
    pub(super) fn prepare(
        &self,
        program: &Program,
        port: &Port,
        directory: &Path,
    ) -> io::Result<()> {
        let Mode::Sentinel(lines) = &self.mode else {
            return Ok(());
        };
        let common = self.network(program, port).into_iter();
        let common = common.chain([("logfile", "redis.log".into())]);
        let text: String = common
            .map(|(name, value)| format!("{name} {value}\n"))
            .chain(lines.iter().map(|it| format!("{it}\n")))
            .collect();
        fs::write(directory.join(SENTINEL_FILE), text)
    }

    /// Returns the arguments of the program, which is started in its directory.
    pub(super) fn arguments(&self, program: &Program, port: &Port) -> Vec<String> {
        let Mode::Server(more) = &self.mode else {
            return vec![SENTINEL_FILE.into(), "--sentinel".into()];
        };
        let network = self.network(program, port).into_iter();
        let network = network.flat_map(|(name, values)| {
            let values: Vec<_> = values.split(' ').map(str::to_owned).collect();
            [vec![format!("--{name}")], values].concat()
        });
        let fixed = ["--save", "", "--appendonly", "no"];
        let files = ["--unixsocket", "redis.sock", "--logfile", "redis.log"];
        network
            .chain(fixed.into_iter().chain(files).map(str::to_owned))
            .chain(more.iter().cloned())
            .collect()
    }

    /// Returns the text that the process logs once its port is open.
    pub(super) fn ready(&self) -> &'static str {
        match self.mode {
            Mode::Server(_) => "Ready to accept connections",
            Mode::Sentinel(_) => "Sentinel ID is",
        }
    }

    /// Returns the settings of the port and of the source address.
    fn network(&self, program: &Program, port: &Port) -> Vec<(&'static str, String)> {
        let (number, address) = (port.address().port().to_string(), port.address().ip());
        let mut settings = vec![("port", number)];
        match self.source {
            None => settings.push(("bind", address.to_string())),
            // Version 7 has an option for the source. Before that, the first address was the source.
            Some(source) if program.major < 7 => {
                settings.push(("bind", format!("{source} {address}")));
            }
            Some(source) => {
                settings.push(("bind", address.to_string()));
                settings.push(("bind-source-addr", source.to_string()));
            }
        }
        settings
    }
}

/// The installed server program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: String,
    /// The number before the first dot of the version.
    pub(super) major: u32,
}

impl Program {
    /// Finds `redis-server`, or the program that the environment variable `REDIS_SERVER` names.
    pub(super) fn find() -> Result<Self, SpawnError> {
        let path = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        match Command::new(&path).arg("--version").output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(SpawnError::NotInstalled { program: path })
            }
            Err(error) => Err(error.into()),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout);
                // A program that does not tell its version is taken for the oldest one.
                let major = major_version(&text).unwrap_or(0);
                Ok(Self { path, major })
            }
        }
    }
}

/// Reads the version in a text such as `Redis server v=7.0.15 sha=00000000:0`.
fn major_version(text: &str) -> Option<u32> {
    let version = text.split_whitespace().find_map(|it| it.strip_prefix("v="));
    version?.split('.').next()?.parse().ok()
}
