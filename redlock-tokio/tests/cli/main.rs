//! The program `redlock` over real servers: as scripts see it, and on a terminal.

mod commands;
mod endings;
mod on_call;
mod process;
mod scripts;
mod terminal;
