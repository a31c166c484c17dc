//! The start of a process: its `Redlock`, and its users.

use std::{sync::Arc, time::Duration};

use redlock_core::Timestamp;
use redlock_tokio::{BuildError, Clock, Drift, Durability, Redlock, RedlockBuilder};
use tokio::time::sleep;

use crate::{
    authority::Seat,
    configuration::Restarts,
    node::{Client, SimulatedNode},
    rng::Rng,
    seen::Seen,
    services::{House, Service},
    users::{self, Cancel, Environment, Next},
};

/// A process before its start.
pub(crate) struct Setup {
    environment: Environment,
    rng: Rng,
    /// Whether the process has built a `Redlock` before, or was refused.
    has_tried_to_start: bool,
}

impl Setup {
    pub(crate) const fn new(environment: Environment, rng: Rng) -> Self {
        Self {
            environment,
            rng,
            has_tried_to_start: false,
        }
    }

    /// Runs the process: one `Redlock` after the other, until the world tells it to end.
    pub(crate) async fn main(mut self) {
        let environment = self.environment.clone();
        loop {
            let house = House::draw(&mut self.rng);
            let service = environment.records.requests.lock().new_service();
            let client = Client::draw(service, &mut self.rng);
            let redlock = self.redlock(client, house).await;
            let service = Service::new(client, redlock, house);
            let next = users::run(&environment, service, &mut self.rng).await;
            if next != Next::AnotherRedlock {
                break;
            }
        }
    }

    /// Starts, as often as it takes: a process cannot start while too many servers are refused.
    async fn redlock(&mut self, client: Client, house: House) -> Redlock {
        loop {
            let cancel = Cancel::sometimes(&mut self.rng, &self.environment.scale);
            let building = self.builder(client, house).build();
            let Some(built) = cancel.run(building).await else {
                self.environment.note(Seen::StartCancelled);
                continue;
            };
            match built {
                Ok(redlock) => {
                    self.has_tried_to_start = true;
                    return redlock;
                }
                Err(BuildError::Refused { .. } | BuildError::SameServer { .. }) => {
                    self.has_tried_to_start = true;
                    self.environment.note(Seen::NoStart);
                    sleep(Duration::from_secs(1)).await;
                }
                Err(error) => panic!("a process cannot start: {error}"),
            }
        }
    }

    fn builder(&mut self, client: Client, house: House) -> RedlockBuilder {
        let Environment {
            host,
            network,
            configuration,
            scale,
            ..
        } = self.environment.clone();
        let max_ttl = scale.max_ttl;
        let builder = match configuration.owners {
            Some(owners) => {
                let is_first_start = host.life == 1 && !self.has_tried_to_start;
                let seats = Seat::all(owners, is_first_start, client, &host, &network);
                owners.configure(Redlock::builder().custom_nodes(seats), max_ttl)
            }
            None => {
                let node = |server| SimulatedNode::new(server, client, &host, &network);
                Redlock::builder().custom_nodes((0..scale.servers).map(node))
            }
        };
        let wall = Arc::clone(&host);
        let drift = if configuration.drift {
            Drift::default()
        } else {
            Drift::new(0, Duration::ZERO)
        };
        let mut builder = builder
            .client_name("simulated")
            .max_ttl(max_ttl)
            .ttl(max_ttl)
            .max_hold(2 * max_ttl)
            .connect_timeout(Duration::from_secs(1))
            .max_waiters_per_key(house.max_waiters_per_key)
            .drift(drift)
            .max_waiters_total(house.max_waiters_total)
            .random_seed(self.rng.u64(..))
            .wall_clock(move || wall.wall())
            .clock(Clock::custom(move || -> Timestamp { host.timestamp() }));
        // Locks that are not renewed are handed over for as long as they live.
        let unrenewed = (!configuration.renews).then_some(max_ttl);
        if let Some(time) = house.handover_for.or(unrenewed) {
            builder = builder.handover_for(time);
        }
        if let Some(percent) = house.poller_share {
            builder = builder.poller_share(percent);
        }
        builder = match configuration.restarts {
            Restarts::Quarantined => builder,
            Restarts::Durable => builder.durability(Durability::FsyncAlways),
            Restarts::Trusted => builder.durability(Durability::AssumedForTests),
        };
        if configuration.allows_unvetted {
            builder.allow_unvetted_nodes()
        } else {
            builder
        }
    }
}
