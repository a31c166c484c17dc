use super::Cluster;
use crate::{error::TopologyError, waiting::wait_until};

/// How long a server may take to move keys to another one, in milliseconds.
const MIGRATION_LIMIT: &str = "5000";

/// The most keys that move at once.
const BATCH: usize = 100;

/// Slots on their way from one shard to another, with a part of their keys moved.
///
/// The old owner answers for the keys that it has still, and sends clients to the new one for others (`ASK`).
/// A command with several keys of which some have moved is refused (`TRYAGAIN`). The slots stay on their way
/// when this is dropped; [`Cluster::move_slots`](super::Cluster::move_slots) takes the move up again.
///
/// See [`Cluster::start_move`](super::Cluster::start_move).
#[derive(Debug)]
#[must_use = "the slots stay on their way until the move is finished"]
pub struct SlotMove<'a> {
    cluster: &'a Cluster,
    slots: Vec<u16>,
    /// The shards.
    from: usize,
    to: usize,
}

/// The masters of the two shards, now.
struct Ends {
    from: usize,
    to: usize,
}

impl<'a> SlotMove<'a> {
    pub(super) fn start(
        cluster: &'a Cluster,
        slots: Vec<u16>,
        from: usize,
        to: usize,
    ) -> Result<Self, TopologyError> {
        let slot_move = Self {
            cluster,
            slots,
            from,
            to,
        };
        wait_until("the slots are on their way", || slot_move.mark())?;
        Ok(slot_move)
    }

    /// Moves keys of these slots to the new owner, and blocks until they have moved. Returns how many keys have
    /// moved: fewer than `at_most` if there were fewer.
    ///
    /// After a failover of one of the two shards, the move goes on with its new master. A step that a server refuses
    /// meanwhile is tried again.
    ///
    /// # Errors
    ///
    /// If a server goes on to refuse a step, or if a shard has no master.
    pub fn move_keys(&self, at_most: usize) -> Result<usize, TopologyError> {
        let mut moved = 0;
        wait_until("the keys have moved", || {
            self.try_to_move_keys(at_most, &mut moved)
        })?;
        Ok(moved)
    }

    fn try_to_move_keys(&self, at_most: usize, moved: &mut usize) -> Result<(), String> {
        let ends = self.mark()?;
        self.carry(&ends, at_most, moved)
    }

    /// Moves the keys that are left, and makes the new shard the owner of the slots. Blocks until a majority of the
    /// nodes names the new owner.
    ///
    /// # Errors
    ///
    /// As for [`move_keys`](Self::move_keys). The slots are then still on their way.
    pub fn finish(self) -> Result<(), TopologyError> {
        wait_until("the new owner has the slots", || {
            let owner = self.try_to_finish()?;
            let last = self.slots.last();
            let named = last.and_then(|it| self.cluster.owner_of(*it));
            let is_named = last.is_none() || named == Some(owner);
            is_named
                .then_some(())
                .ok_or_else(|| format!("the owner is {named:?}"))
        })
    }

    /// Returns the new owner.
    fn try_to_finish(&self) -> Result<usize, String> {
        let ends = self.ends()?;
        let is_owner = |slot: &u16| self.cluster.owner_of(*slot) == Some(ends.to);
        if self.slots.last().is_some_and(is_owner) {
            return Ok(ends.to);
        }
        let mut moved = 1;
        while moved > 0 {
            moved = 0;
            self.try_to_move_keys(usize::MAX, &mut moved)?;
        }
        self.give_to(&ends)?;
        Ok(ends.to)
    }

    fn give_to(&self, ends: &Ends) -> Result<(), String> {
        let id = self.id_of(ends.to)?;
        // The new owner first: it takes a new epoch, by which all others believe it.
        self.assign(ends.to, &self.slots, &["NODE", &id])?;
        self.assign(ends.from, &self.slots, &["NODE", &id])?;
        let all = 0..self.cluster.peers.len();
        for number in all.filter(|it| *it != ends.from && *it != ends.to) {
            // The others hear of the owner from the nodes, too. A replica may refuse, and a node may be down.
            let _ = self.assign(number, &self.slots, &["NODE", &id]);
        }
        Ok(())
    }

    /// Informs both ends that the slots move. A server that was promoted since does not know.
    fn mark(&self) -> Result<Ends, String> {
        let ends = self.ends()?;
        self.restore_owners(ends.to)?;
        let (from, to) = (self.id_of(ends.from)?, self.id_of(ends.to)?);
        self.assign(ends.to, &self.slots, &["IMPORTING", &from])?;
        self.assign(ends.from, &self.slots, &["MIGRATING", &to])?;
        Ok(ends)
    }

    /// Returns an error if the target names no owner of some slots, and lets it hear of one.
    ///
    /// A server that imports a slot does not accept another owner of the slot. If the source fails over meanwhile,
    /// the server in the end names no owner, and refuses the keys that the new master sends. Without the mark, the
    /// server hears of the owner from the other nodes.
    fn restore_owners(&self, target: usize) -> Result<(), String> {
        let lines = self.cluster.lines(target)?;
        let has_none = |slot: &u16| !lines.iter().any(|it| it.has_slot(*slot));
        let without: Vec<_> = self.slots.iter().copied().filter(has_none).collect();
        if without.is_empty() {
            return Ok(());
        }
        self.assign(target, &without, &["STABLE"])?;
        let count = without.len();
        Err(format!("node {target} names no owner of {count} slots"))
    }

    fn assign(&self, number: usize, slots: &[u16], what: &[&str]) -> Result<(), String> {
        let command = |slot: &u16| {
            let slot = slot.to_string();
            let words = ["CLUSTER", "SETSLOT", &slot]
                .into_iter()
                .chain(what.iter().copied());
            words.map(str::to_owned).collect()
        };
        let commands: Vec<Vec<String>> = slots.iter().map(command).collect();
        let mut connection = self.cluster.commands(number).connect()?;
        connection.order_all(&commands)
    }

    /// Moves keys until so many have moved in all.
    fn carry(&self, ends: &Ends, at_most: usize, moved: &mut usize) -> Result<(), String> {
        let mut connection = self.cluster.commands(ends.from).connect()?;
        let port = self.cluster.peers[ends.to].address().port().to_string();
        for slot in &self.slots {
            let slot = slot.to_string();
            while *moved < at_most {
                let batch = BATCH.min(at_most - *moved).to_string();
                let question = ["CLUSTER", "GETKEYSINSLOT", &slot, &batch];
                let keys: Vec<Vec<u8>> = connection.ask(&question)?;
                if keys.is_empty() {
                    break;
                }
                let count = keys.len();
                // The key's own node is the one to believe, if an earlier try has copied the key.
                let head = [
                    "MIGRATE",
                    "127.0.0.1",
                    &port,
                    "",
                    "0",
                    MIGRATION_LIMIT,
                    "REPLACE",
                ];
                let password = self.cluster.password.as_deref();
                let authentication = password.map_or_else(Vec::new, |it| vec!["AUTH", it]);
                let head = head.into_iter().chain(authentication).chain(["KEYS"]);
                let head = head.map(|it| it.as_bytes().to_vec());
                let command: Vec<_> = head.chain(keys).collect();
                // NOKEY, if all of them have expired meanwhile.
                let _: String = connection.ask(&command)?;
                *moved += count;
            }
        }
        Ok(())
    }

    fn ends(&self) -> Result<Ends, String> {
        let master = |shard| {
            let master = self.cluster.master_of(shard);
            master.ok_or_else(|| format!("shard {shard} has no master"))
        };
        Ok(Ends {
            from: master(self.from)?,
            to: master(self.to)?,
        })
    }

    fn id_of(&self, number: usize) -> Result<String, String> {
        self.cluster.commands(number).ask(&["CLUSTER", "MYID"])
    }
}
