use serde::Serialize;

use crate::{
    cell::Cell,
    machine::Machine,
    round_trip::RoundTrip,
    sections::{Crowd, Fair, Foreign},
};

/// Everything that was measured.
#[derive(Serialize)]
pub(crate) struct Figures {
    pub(crate) machine: Machine,
    pub(crate) seconds_per_cell: f64,
    pub(crate) round_trip: RoundTrip,
    pub(crate) cells: Vec<Cell>,
    pub(crate) foreign: Vec<Foreign>,
    pub(crate) fairness: Vec<Fair>,
    pub(crate) sharing: Vec<Crowd>,
    /// The failures, in words.
    pub(crate) failures: Vec<String>,
}
