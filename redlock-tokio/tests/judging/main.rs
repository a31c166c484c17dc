//! The tests of the judge of the soak and of the simulator.

#[path = "../judge/judge.rs"]
mod judge;
mod random;
mod reference;
mod said;
mod stories;
