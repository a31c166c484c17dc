//! The nodes' figures about themselves.

use std::ops::Sub;

use deadpool_redis::redis::{self, Client, FromRedisValue, aio::MultiplexedConnection};

use crate::Result;

/// How many commands all nodes together have carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Commands {
    pub(crate) sets: f64,
    /// How long they took the servers, in microseconds.
    pub(crate) server_us: f64,
    pub(crate) scripts: f64,
    /// Which is what a script does for each key that it extends.
    pub(crate) pexpires: f64,
    /// Those that scripts make included.
    pub(crate) all: f64,
}

impl Sub for Commands {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            sets: self.sets - other.sets,
            server_us: self.server_us - other.server_us,
            scripts: self.scripts - other.scripts,
            pexpires: self.pexpires - other.pexpires,
            all: self.all - other.all,
        }
    }
}

pub(crate) async fn commands(urls: &[String]) -> Result<Commands> {
    let mut commands = Commands::default();
    for url in urls {
        let info: String = ask(url, &["INFO", "all"]).await?;
        let field = |name: &str, end: char| {
            let line = info.lines().find_map(|it| it.strip_prefix(name));
            line.and_then(|it| it.split(end).next()?.parse::<f64>().ok())
        };
        // There is no line for a command that was never called.
        let of_commands = info
            .lines()
            .filter(|it| it.starts_with("cmdstat_") && !it.contains("info:"));
        let times = of_commands.filter_map(|it| it.split("usec=").nth(1)?.split(',').next());
        commands.server_us += times.filter_map(|it| it.parse::<f64>().ok()).sum::<f64>();
        commands.sets += field("cmdstat_set:calls=", ',').unwrap_or_default();
        commands.scripts += field("cmdstat_evalsha:calls=", ',').unwrap_or_default();
        commands.pexpires += field("cmdstat_pexpire:calls=", ',').unwrap_or_default();
        commands.all += field("total_commands_processed:", '\r')
            .ok_or("INFO does not tell total_commands_processed")?;
    }
    Ok(commands)
}

/// Returns how many keys there are on all nodes together.
pub(crate) async fn keys(urls: &[String]) -> Result<u64> {
    let mut keys = 0;
    for url in urls {
        keys += ask::<u64>(url, &["DBSIZE"]).await?;
    }
    Ok(keys)
}

async fn ask<T: FromRedisValue>(url: &str, words: &[&str]) -> Result<T> {
    let mut connection: MultiplexedConnection = Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let mut cmd = redis::cmd(words[0]);
    for word in &words[1..] {
        cmd.arg(word);
    }
    Ok(cmd.query_async(&mut connection).await?)
}
