//! What is measured, one module a question.

mod control;
mod foreign;
mod one_key;
mod summary;

pub(crate) use self::foreign::Foreign;
use crate::{Result, args::Args, figures::Figures, machine::Machine, test_bed::TestBed};

/// Runs all sections, and prints their tables. A contestant that fails does not keep the others from
/// being measured.
pub(crate) fn run(args: &Args) -> Result<Figures> {
    let machine = Machine::look();
    let bed = TestBed::new()?;
    control::check(&bed)?;
    let mut figures = Figures {
        machine,
        seconds_per_cell: args.time.as_secs_f64(),
        round_trip: bed.round_trip,
        cells: Vec::new(),
        foreign: Vec::new(),
        failures: Vec::new(),
    };
    one_key::measure(&bed, args, &mut figures);
    foreign::measure(&bed, args, &mut figures);
    summary::print(args, &figures);
    Ok(figures)
}
