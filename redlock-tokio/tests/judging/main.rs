//! The tests of the judge of the soak and of the simulator, and of what the soak's workers report to it.

#[path = "../judge/judge.rs"]
mod judge;

mod ends;
mod random;
mod reference;
mod reports;
mod said;
mod stories;
