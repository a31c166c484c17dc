use serde::{Deserialize, Serialize};

use crate::{Result, settings::Breakage, topology::Topology};

/// The task of a worker process, as arguments of its command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
        let [flag, order] = arguments else {
            return None;
        };
        (flag == Self::FLAG).then(|| Ok(serde_json::from_str(order)?))
    }

    pub(crate) fn arguments(&self) -> Result<[String; 2]> {
        Ok([Self::FLAG.into(), serde_json::to_string(self)?])
    }
}
