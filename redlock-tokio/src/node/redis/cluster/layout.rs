//! Reading the answer to `CLUSTER NODES`.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use redlock_core::{MemberId, Owner, Tenure};

use crate::node::{
    NodeError,
    redis::{
        address::Endpoint,
        key_slot::KeySlot,
        survey::{Place, View, member_id},
    },
};

/// One node's view of all nodes of its cluster.
#[derive(Debug)]
pub(super) struct Layout {
    /// The node that says it.
    myself: MemberId,
    /// All nodes, including the replicas and the node itself. A node that the others do not know by its id yet is
    /// left out.
    nodes: BTreeMap<MemberId, ClusterNode>,
}

/// One node of a cluster, as another one sees it.
#[derive(Debug)]
struct ClusterNode {
    /// `None` if the node that was asked does not know the address. It knows its own only from the others.
    announced: Option<Announced>,
    /// The number of the failover, or of the last change of slots, that gave the node its slots.
    config_epoch: u64,
    slots: Vec<RangeInclusive<u16>>,
}

/// The address that a node announces.
#[derive(Debug)]
struct Announced {
    /// `None` if the node does not know its own IP address yet.
    ip: Option<String>,
    /// The host name that the node was configured to announce, if any.
    hostname: Option<String>,
    port: u16,
}

/// How many nodes an answer may name. Redis is made for this many. Each node is asked, so a wrong answer with more
/// would open as many connections.
const MOST_NODES: usize = 1000;

impl Layout {
    /// Parses the text.
    ///
    /// # Errors
    ///
    /// Names what does not make sense: half of an answer must not decide which server is the owner of a slot.
    pub(super) fn parse(text: &str) -> Result<Self, NodeError> {
        let mut myself = None;
        let mut nodes = BTreeMap::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let line = Line::parse(line)?;
            if line.has_flag("handshake") {
                // Its id is a random one, until the node has answered.
                continue;
            }
            if line.has_flag("myself") && myself.replace(line.id).is_some() {
                return Err(unexpected(
                    "two nodes that claim to be the one that answered",
                ));
            }
            if nodes.insert(line.id, line.node()?).is_some() {
                return Err(unexpected("two nodes with one id"));
            }
            if nodes.len() > MOST_NODES {
                return Err(unexpected(&format!("more than {MOST_NODES} nodes")));
            }
        }
        let layout = Self {
            myself: myself
                .ok_or_else(|| unexpected("no node that claims to be the one that answered"))?,
            nodes,
        };
        layout.refuse_shared_slots()?;
        Ok(layout)
    }

    /// Returns what the node says of the owners of these slots. `reached` is where it was reached.
    pub(super) fn view(&self, slots: &[KeySlot], uses_tls: bool, reached: &Endpoint) -> View {
        let place = |(id, node): (&MemberId, &ClusterNode)| {
            let reached = (*id == self.myself).then_some(reached);
            let announced = node.announced.as_ref();
            (*id, announced.and_then(|it| it.place(uses_tls, reached)))
        };
        View {
            myself: self.myself,
            members: self.nodes.iter().map(place).collect(),
            tenures: slots.iter().map(|slot| self.tenure(*slot)).collect(),
            // The answer does not say since when.
            age: Duration::ZERO,
        }
    }

    /// Returns the node that owns the slot, and the change that made it the owner. `None` if no node does.
    fn tenure(&self, slot: KeySlot) -> Option<Tenure> {
        let owns = |node: &ClusterNode| {
            let mut slots = node.slots.iter();
            slots.any(|range| range.contains(&slot.number()))
        };
        let (id, node) = self.nodes.iter().find(|(_, node)| owns(node))?;
        Some(Tenure {
            owner: Owner::new(id.to_string()),
            epoch: node.config_epoch,
        })
    }

    fn refuse_shared_slots(&self) -> Result<(), NodeError> {
        let ranges = self.nodes.values().flat_map(|node| &node.slots);
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_unstable_by_key(|range| *range.start());
        let overlap = |pair: &[&RangeInclusive<u16>]| pair[0].end() >= pair[1].start();
        if ranges.windows(2).any(overlap) {
            return Err(unexpected("two nodes that own one slot"));
        }
        Ok(())
    }
}

impl Announced {
    /// Returns where to connect to. `reached` is where the node that gave the layout was reached, if the address is its
    /// own.
    ///
    /// Certificates are for host names, so over TLS the host name is taken if there is one.
    fn place(&self, uses_tls: bool, reached: Option<&Endpoint>) -> Option<Place> {
        let (ip, hostname) = (self.ip.as_deref(), self.hostname.as_deref());
        let preferred = if uses_tls {
            hostname.or(ip)
        } else {
            ip.or(hostname)
        };
        let endpoint = |host| Endpoint::tcp(host, self.port).ok();
        match preferred {
            Some(host) => endpoint(host).map(Place::Announced),
            None => endpoint(reached?.host()?).map(Place::Reached),
        }
    }
}

/// The fields of a line: `id address flags master ping-sent pong-received config-epoch link slot..`.
struct Line<'a> {
    id: MemberId,
    address: &'a str,
    flags: &'a str,
    config_epoch: &'a str,
    slots: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Result<Self, NodeError> {
        let mut fields = line.split_ascii_whitespace();
        let mut next = |name| {
            fields
                .next()
                .ok_or_else(|| unexpected(&format!("a node without {name}")))
        };
        let id = next("an id")?;
        let address = next("an address")?;
        let flags = next("flags")?;
        for name in ["a master", "a ping", "a pong"] {
            next(name)?;
        }
        let config_epoch = next("a config epoch")?;
        next("a link state")?;
        Ok(Self {
            id: member_id(id).ok_or_else(|| unexpected("a node with an odd id"))?,
            address,
            flags,
            config_epoch,
            slots: fields.collect(),
        })
    }

    fn has_flag(&self, name: &str) -> bool {
        self.flags.split(',').any(|flag| flag == name)
    }

    fn node(&self) -> Result<ClusterNode, NodeError> {
        // `[slot->-id]` and `[slot-<-id]` are slots that move. The owner stays the same until all keys have moved.
        let slots = self.slots.iter().filter(|slot| !slot.starts_with('['));
        Ok(ClusterNode {
            announced: if self.has_flag("noaddr") {
                None
            } else {
                Some(announced(self.address)?)
            },
            config_epoch: self
                .config_epoch
                .parse()
                .map_err(|_| unexpected("a config epoch that is not a number"))?,
            slots: slots.map(|slot| range(slot)).collect::<Result<_, _>>()?,
        })
    }
}

/// Reads `ip:port@bus-port[,hostname[,name=value..]]`. Servers before Redis 7 have no host name.
fn announced(text: &str) -> Result<Announced, NodeError> {
    let odd = || unexpected("an invalid address");
    let mut parts = text.split(',');
    let endpoint = parts.next().unwrap_or_default();
    let hostname = parts.next().filter(|name| !name.contains('='));
    let endpoint = endpoint.split('@').next().unwrap_or_default();
    // An IPv6 address has no brackets here.
    let (ip, port) = endpoint.rsplit_once(':').ok_or_else(odd)?;
    let known = |it: &&str| !it.is_empty() && *it != "?";
    Ok(Announced {
        ip: Some(ip).filter(known).map(str::to_owned),
        hostname: hostname.filter(known).map(str::to_owned),
        port: port.parse().map_err(|_| odd())?,
    })
}

/// Reads `first-last`, or one slot.
fn range(text: &str) -> Result<RangeInclusive<u16>, NodeError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let slot = |text: &str| text.parse().ok().and_then(KeySlot::new);
    match (slot(first), slot(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first.number()..=last.number()),
        _ => Err(unexpected("slots that are none")),
    }
}

fn unexpected(what: &str) -> NodeError {
    NodeError::Unexpected(format!("CLUSTER NODES names {what}").into())
}

#[cfg(test)]
mod tests;
