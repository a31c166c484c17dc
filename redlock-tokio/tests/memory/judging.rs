//! The tests of the judge of the soak and of the simulator, and of what the soak's workers report to it.

mod ends;
mod random;
mod reference;
mod reports;
mod said;
mod stories;
