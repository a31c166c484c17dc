//! The measurements, one module for each question.

mod control;
mod fairness;
mod faults;
mod foreign;
mod one_key;
mod sharing;
mod summary;

pub(crate) use self::{fairness::Fair, foreign::Foreign, sharing::Crowd};
use crate::{Result, args::Args, figures::Figures, machine::Machine, test_bed::TestBed};

/// Runs all sections, and prints their tables. A contestant that fails does not keep the others from
/// being measured.
pub(crate) fn run(args: &Args) -> Result<Figures> {
    let machine = Machine::look();
    let bed = TestBed::new(args.distance)?;
    control::check(&bed)?;
    let mut figures = Figures {
        machine,
        seconds_per_cell: args.time.as_secs_f64(),
        round_trip: bed.round_trip,
        cells: Vec::new(),
        foreign: Vec::new(),
        fairness: Vec::new(),
        sharing: Vec::new(),
        failures: Vec::new(),
    };
    if args.faults {
        faults::measure(&bed, args)?;
    } else if args.sharing {
        figures.sharing = sharing::measure(&bed, args.time, &mut figures.failures);
    } else if let Some(mixes) = &args.fairness {
        figures.fairness = fairness::measure(&bed, args, mixes);
    } else {
        one_key::measure(&bed, args, &mut figures);
        figures.foreign = foreign::measure(&bed, args, &mut figures.failures);
        summary::print(args, &figures);
    }
    Ok(figures)
}
