use crate::{Result, settings::Breakage, topology::Topology};

/// The task of a worker process, as arguments of its command line.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) seed: u64,
    pub(crate) topology: Topology,
    pub(crate) breakage: Option<Breakage>,
    pub(crate) store: String,
    pub(crate) nodes: Vec<String>,
}

impl Order {
    const FLAG: &str = "--worker";

    /// Returns the order in these arguments, if they are those of a worker.
    pub(crate) fn parse(arguments: &[String]) -> Option<Result<Self>> {
        let (flag, rest) = arguments.split_first()?;
        (flag == Self::FLAG).then(|| Self::read(rest))
    }

    fn read(arguments: &[String]) -> Result<Self> {
        let [seed, topology, breakage, store, nodes @ ..] = arguments else {
            return Err("a worker needs a seed, a topology, a breakage, a store and nodes".into());
        };
        Ok(Self {
            seed: seed.parse()?,
            topology: Topology::named(topology).ok_or("an unknown topology")?,
            breakage: Breakage::named(breakage),
            store: store.clone(),
            nodes: nodes.to_vec(),
        })
    }

    pub(crate) fn arguments(&self) -> Vec<String> {
        let breakage = self.breakage.map_or("none", Breakage::name);
        let own = [
            Self::FLAG.into(),
            self.seed.to_string(),
            self.topology.name().into(),
            breakage.into(),
            self.store.clone(),
        ];
        own.into_iter().chain(self.nodes.iter().cloned()).collect()
    }
}
