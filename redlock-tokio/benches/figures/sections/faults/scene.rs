use std::{thread, time::Duration};

use deadpool_redis::redis::{self, Client};
use futures::future::BoxFuture;
use redlock_kit::{Proxy, RedisServer, Worker};
use redlock_tokio::{Inspection, node::KeyState};
use tokio::{join, time::sleep};

use super::{Fault, Holder};
use crate::{
    Result,
    bed::Bed,
    contestants::{Access, Contestant, Ours, Plain},
    crew::Crew,
    group::{Group, Order},
    history::{History, now},
};

/// In this time all that were started stand in line.
const PAUSE: Duration = Duration::from_millis(300);

/// After so long waiters look rarely whether the key is free.
const UNTIL_FAULT: Duration = Duration::from_secs(4);

/// How long after the fault the key is released.
const UNTIL_RELEASE: Duration = Duration::from_millis(500);

/// How long a process or a node is stopped.
const STOPPED: Duration = Duration::from_secs(3);

/// Shorter than a node may be silent until a line moves.
const HANGS: Duration = Duration::from_millis(1500);

/// How often a process is killed, and the time until then.
const KILLS: usize = 8;
const UNTIL_KILL: Duration = Duration::from_secs(2);

/// Gives four that are no members the first places of the line, whatever its name is, and returns how many are new.
const FORGE: &str = "
    local found = 0
    for _, line in ipairs(redis.call('SCAN', 0, 'MATCH', ARGV[1], 'COUNT', 1000, 'TYPE', 'zset')[2]) do
        for forged = 1, string.find(line, ':seen:') and 0 or 4 do
            found = found + redis.call('ZADD', line, -forged, string.rep(forged, 16))
        end
    end
    return found";

/// What the stranger writes into the key, and for how long: longer than a row lasts.
const TOKEN: &str = "a stranger's";
const TTL: Duration = Duration::from_secs(600);

/// What releases a lock.
type Release = BoxFuture<'static, Result<()>>;

/// Servers and a key that groups of processes want.
pub(super) struct Scene {
    key: String,
    /// The ways of the faulty to the servers.
    proxies: Vec<Proxy>,
    faulty_urls: Vec<String>,
    faulty: Crew,
    bed: Bed,
}

impl Scene {
    /// Lets the groups come one after the other while the holder has the key: those beside, the faulty, and the watched.
    /// Then comes the fault, and the release. Returns what all, the faulty and the watched go through from there on.
    pub(super) fn play(
        holder: Holder,
        groups: [Group; 3],
        fault: Fault,
        time: Duration,
    ) -> Result<[History; 3]> {
        let bed = Bed::near()?;
        let proxies = bed.servers.iter().map(|it| Proxy::spawn(it.address()));
        let proxies: Vec<_> = proxies.collect::<Result<_, _>>()?;
        let mut scene = Self {
            key: bed.new_key(),
            faulty_urls: proxies.iter().map(Proxy::url).collect(),
            proxies,
            faulty: Crew::default(),
            bed,
        };
        let mut release = scene.bed.runtime.block_on(scene.hold(holder))?;
        let beside = scene.hire(groups[0], &scene.bed.urls)?;
        scene.faulty = scene.hire(groups[1], &scene.faulty_urls)?;
        let watched = scene.hire(groups[2], &scene.bed.urls)?;
        let is_released = !matches!(holder, Holder::Nobody | Holder::Forever(_));
        if is_released {
            thread::sleep(UNTIL_FAULT);
        }
        let mut start = now();
        scene.cause(fault, groups[1])?;
        if is_released {
            thread::sleep(UNTIL_RELEASE);
            start = now();
            scene.bed.runtime.block_on(&mut release)?;
        }
        thread::sleep(time);
        let window = start..now();
        if !matches!(fault, Fault::Nothing) {
            // Those that stand still do not end by themselves.
            scene.faulty.kill();
        }
        let [beside, watched] = [beside.stop()?, watched.stop()?];
        let faulty = scene.faulty.stop()?;
        let all = [&beside[..], &faulty, &watched].concat();
        Ok([all, faulty, watched].map(|it| History::new(it, window.clone())))
    }

    /// Lets the holder take the key.
    async fn hold(&self, holder: Holder) -> Result<Release> {
        let key = match holder {
            Holder::Nobody => return Ok(Box::pin(async { Ok(()) })),
            Holder::Stranger(ending) | Holder::Forever(ending) => format!("{}{ending}", self.key),
            Holder::OfTheLine => self.key.clone(),
        };
        let stranger = Plain::connect(&self.bed.urls, Access::Lock).await?;
        stranger.set(&key, TOKEN, TTL).await;
        if !matches!(holder, Holder::OfTheLine) {
            return Ok(Box::pin(async move {
                stranger.release(&key, TOKEN.into()).await
            }));
        }
        let next = Ours::connect(&self.bed.urls, Access::Lock).await?;
        let leave = async {
            sleep(PAUSE).await;
            stranger.delete(&key, TOKEN).await
        };
        let guard = join!(next.acquire(&key), leave).0?;
        Ok(Box::pin(async move { next.release(&key, guard).await }))
    }

    /// Starts the processes of a group, and lets them begin.
    fn hire(&self, group: Group, urls: &[String]) -> Result<Crew> {
        let order = Order {
            urls: urls.to_vec(),
            key: self.key.clone(),
            group,
        };
        let mut crew = Crew::hire(&vec![order; group.processes])?;
        crew.start()?;
        thread::sleep(PAUSE);
        Ok(crew)
    }

    fn cause(&mut self, fault: Fault, group: Group) -> Result<()> {
        match fault {
            Fault::Nothing => {}
            Fault::Kill => self.faulty.kill(),
            Fault::Stop => self.faulty.workers().for_each(Worker::freeze),
            Fault::CutOff => {
                for proxy in &self.proxies {
                    proxy.requests().lose();
                    proxy.replies().lose();
                    proxy.ignore();
                }
            }
            Fault::Refuse => {
                let proxy = &self.proxies[self.look(line_node)?];
                proxy.refuse();
                proxy.reset();
            }
            Fault::CrashLoop => {
                for _ in 0..KILLS {
                    thread::sleep(UNTIL_KILL);
                    // Labels end with the process. The first may have the key at any moment.
                    let ids = self.faulty.workers().map(|it| format!(":{}", it.id()));
                    let id = ids.collect::<String>();
                    self.look(|it| {
                        let mut behind = it.waiting().iter().skip(1).flatten();
                        behind.find(|label| label.ends_with(&id)).map(drop)
                    })?;
                    self.faulty.kill();
                    self.faulty = self.hire(group, &self.faulty_urls)?;
                }
            }
            Fault::Forge => self.bed.runtime.block_on(self.forge())?,
            Fault::HangInTurn => {
                for node in self.bed.servers.iter() {
                    stop(node, HANGS);
                }
            }
            Fault::StopNode => stop(self.bed.servers.get(self.look(line_node)?), STOPPED),
            Fault::RestartNode => self.bed.servers.get(self.look(line_node)?).restart()?,
        }
        Ok(())
    }

    /// Puts members that are none to the head of the line.
    async fn forge(&self) -> Result<()> {
        for url in self.bed.urls.iter().cycle() {
            let client = Client::open(url.as_str())?;
            let mut node = client.get_multiplexed_async_connection().await?;
            let mut forge = redis::cmd("EVAL");
            forge.arg(FORGE).arg(0);
            forge.arg(format!("redlock:line:*{}*", self.key));
            if forge.query_async::<usize>(&mut node).await? > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Inspects the key until this finds what it looks for.
    fn look<T>(&self, find: impl Fn(&Inspection) -> Option<T>) -> Result<T> {
        self.bed.runtime.block_on(async {
            let redlock = self.bed.servers.builder().build().await?;
            loop {
                if let Some(found) = find(&redlock.inspect(&self.key).await?) {
                    return Ok(found);
                }
            }
        })
    }
}

fn stop(node: &RedisServer, time: Duration) {
    node.freeze();
    thread::sleep(time);
    node.thaw();
}

fn line_node(inspection: &Inspection) -> Option<usize> {
    let has_line = |state: &KeyState| !state.waiting.is_empty();
    let mut nodes = inspection.nodes().iter();
    nodes.position(|node| node.state.as_ref().is_ok_and(has_line))
}
