//! What the processes do with their `Redlock`s, and what they check meanwhile.

mod asked;
mod cancel;
mod environment;
mod fleet;
mod kept;
mod operations;
mod outliving;
pub(crate) mod panics;
mod program;
mod read_write;
mod rush;
mod terms;
mod transfers;
mod user;
mod view;
mod work;

pub(crate) use cancel::Cancel;
pub(crate) use environment::{Environment, Records};
pub(crate) use program::{Next, run};
