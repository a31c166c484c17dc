use std::{env, io, process::Command};

use super::error::SpawnError;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_each_maker_is_read() {
        let redis = "Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64 build=1";
        assert_eq!(major_version(redis), Some(6));
        let valkey = "Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(major_version(valkey), Some(9));
        assert_eq!(major_version("a server of another kind"), None);
    }
}
