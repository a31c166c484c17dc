//! The program `redlock` over real servers: as scripts see it, and on a terminal.

#[path = "../../../tests/support/certificates.rs"]
mod certificates;
mod commands;
mod configuration;
mod endings;
mod hosts;
mod jobs;
mod kin;
mod lists;
mod on_call;
mod process;
mod scripts;
mod terminal;
mod tls;
mod waiting;
