use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, anyhow};
use deadpool_redis::{
    Config, Connection, Pool, PoolConfig, Runtime, Timeouts,
    redis::{self, AsyncCommands, Client},
};
use futures::{Stream, StreamExt};
use tokio::time::timeout;

use super::StoreError;
use crate::{
    event::{Sale, Sales},
    line::Person,
};

/// How long a connection may take. A command on it has half a second, the default of the redis crate.
const CONNECTION_LIMIT: Duration = Duration::from_secs(1);

/// The largest number of connections.
const CONNECTIONS: usize = 16;

/// How long the people of a process are shown without a new announcement. Processes announce them every second,
/// and may stall for a while.
const LINE_TTL: Duration = Duration::from_secs(5);

/// The channel on which processes announce the events that have changed.
const CHANGES: &str = "tickets:changes";

/// The name of the hash with the number of repeated sales of each event.
const SOLD_TWICE: &str = "tickets:sold_twice";

/// Keeps the sales in a Redis server, through which processes announce changes and people in line.
#[derive(Debug)]
pub(crate) struct SharedStore {
    pool: Pool,
    /// Connects for the subscription, which needs a connection of its own.
    client: Client,
    /// The identity of this process among all processes of all hosts.
    process: String,
}

impl SharedStore {
    /// Creates the store. It connects with the first command.
    pub(super) fn open(url: &str) -> Result<Self> {
        let mut config = Config::from_url(url);
        config.pool = Some(PoolConfig {
            timeouts: Timeouts {
                wait: Some(CONNECTION_LIMIT),
                create: Some(CONNECTION_LIMIT),
                recycle: Some(CONNECTION_LIMIT),
            },
            ..PoolConfig::new(CONNECTIONS)
        });
        Ok(Self {
            pool: config.create_pool(Some(Runtime::Tokio1))?,
            client: Client::open(url)?,
            process: format!("{:016x}", getrandom::u64()?),
        })
    }

    pub(super) async fn owner(&self, event: &str, seat: u32) -> Result<Option<String>, StoreError> {
        Ok(self.connection().await?.hget(owners(event), seat).await?)
    }

    /// Returns the sales, and the people in line in other processes.
    pub(super) async fn read(&self, event: &str) -> Result<(Sales, Vec<Person>), StoreError> {
        type Answer = (
            BTreeMap<u32, String>,
            BTreeMap<u32, u32>,
            Option<u64>,
            Vec<String>,
        );
        let mut connection = self.connection().await?;
        let (owners, mut payments, sold_twice, processes): Answer = redis::pipe()
            .atomic()
            .hgetall(owners(event))
            .hgetall(payments(event))
            .hget(SOLD_TWICE, event)
            .smembers(processes(event))
            .query_async(&mut connection)
            .await?;
        let sale = |(seat, owner)| {
            let payments = payments.remove(&seat).unwrap_or(1);
            (seat, Sale { owner, payments })
        };
        let sales = Sales {
            sold: owners.into_iter().map(sale).collect(),
            sold_twice: sold_twice.unwrap_or(0),
        };
        let others = processes.into_iter().filter(|it| *it != self.process);
        let people = read_lines(&mut connection, event, others.collect()).await?;
        Ok((sales, people))
    }

    /// Announces the people in line in this process to the other processes, and notifies them if `is_new`. The
    /// announcement expires if it is not repeated.
    pub(crate) async fn announce(
        &self,
        event: &str,
        people: &[Person],
        is_new: bool,
    ) -> Result<(), StoreError> {
        let key = line(event, &self.process);
        let mut pipe = redis::pipe();
        pipe.atomic();
        if people.is_empty() {
            pipe.del(key).srem(processes(event), &self.process);
        } else {
            pipe.set_ex(key, serde_json::to_string(people)?, LINE_TTL.as_secs())
                .sadd(processes(event), &self.process);
        }
        if is_new {
            pipe.publish(CHANGES, event);
        }
        let mut connection = self.connection().await?;
        Ok(pipe.exec_async(&mut connection).await?)
    }

    /// Returns the names of events that have changed in some process. The stream ends when the connection breaks.
    pub(crate) async fn changes(&self) -> Result<impl Stream<Item = String> + use<>> {
        let subscribe = async {
            let mut subscription = self.client.get_async_pubsub().await?;
            subscription.subscribe(CHANGES).await?;
            anyhow::Ok(subscription.into_on_message())
        };
        let messages = timeout(CONNECTION_LIMIT, subscribe)
            .await
            .map_err(|_| anyhow!("no answer in time"))??;
        // A message that is not text names no event.
        Ok(messages.map(|message| message.get_payload().unwrap_or_default()))
    }

    pub(super) async fn connection(&self) -> Result<Connection, StoreError> {
        Ok(self.pool.get().await?)
    }
}

/// Writes the new owner of a seat, or frees it.
pub(super) async fn write(
    mut connection: Connection,
    event: &str,
    seat: u32,
    owner: Option<&str>,
) -> Result<(), StoreError> {
    let mut pipe = redis::pipe();
    let pipe = pipe.atomic();
    let Some(owner) = owner else {
        pipe.hdel(owners(event), seat).hdel(payments(event), seat);
        return Ok(pipe.exec_async(&mut connection).await?);
    };
    pipe.hset(owners(event), seat, owner).ignore();
    pipe.hincr(payments(event), seat, 1);
    let (payments,): (u64,) = pipe.query_async(&mut connection).await?;
    if payments > 1 {
        let () = connection.hincr(SOLD_TWICE, event, 1).await?;
    }
    Ok(())
}

/// Returns the people in line in these processes, and removes the processes whose announcements have expired.
async fn read_lines(
    connection: &mut Connection,
    event: &str,
    mut processes_known: Vec<String>,
) -> Result<Vec<Person>, StoreError> {
    if processes_known.is_empty() {
        return Ok(Vec::new());
    }
    processes_known.sort_unstable(); // so that the order of people is stable
    let keys: Vec<_> = processes_known.iter().map(|it| line(event, it)).collect();
    let lines: Vec<Option<String>> = connection.mget(keys).await?;
    let mut people = Vec::new();
    let mut gone = Vec::new();
    for (process, line) in processes_known.into_iter().zip(lines) {
        match line {
            Some(line) => match serde_json::from_str::<Vec<Person>>(&line) {
                Ok(line) => people.extend(line),
                // The people of another version of the program are not shown.
                Err(error) => tracing::debug!("cannot read the line of {process}: {error}"),
            },
            None => gone.push(process),
        }
    }
    if !gone.is_empty() {
        // A process that is back by now adds itself again with its next announcement.
        let () = connection.srem(processes(event), gone).await?;
    }
    Ok(people)
}

/// Returns the name of the hash with the owner of each seat.
fn owners(event: &str) -> String {
    format!("tickets:owners:{event}")
}

/// Returns the name of the hash with the number of payments for each seat.
fn payments(event: &str) -> String {
    format!("tickets:payments:{event}")
}

/// Returns the name of the set of processes with people in line.
fn processes(event: &str) -> String {
    format!("tickets:processes:{event}")
}

/// Returns the name of the list of people in line in a process.
fn line(event: &str, process: &str) -> String {
    format!("tickets:line:{event}:{process}")
}
