//! The box office: server processes that sell tickets under locks.

mod live;
mod rush;
mod sales;
#[path = "../support/mod.rs"]
mod support;
