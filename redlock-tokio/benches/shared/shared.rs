//! The parts of both benchmarks.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

pub(crate) mod contestants;
pub(crate) mod history;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod nodes;
pub(crate) mod packages;
pub(crate) mod program;
pub(crate) mod proxy;
pub(crate) mod round_trip;
pub(crate) mod table;
pub(crate) mod times;
