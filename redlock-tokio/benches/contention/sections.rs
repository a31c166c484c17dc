//! The measurements, one module for each question.

mod control;
mod fairness;
mod faults;
mod foreign;
mod one_key;
mod sharing;

use crate::{Result, args::Args, test_bed::TestBed};

/// Runs all sections, and prints their tables. Returns the failures in words: a contestant that fails does not keep
/// the others from being measured.
pub(crate) fn run(args: &Args) -> Result<Vec<String>> {
    let bed = TestBed::new(args.distance)?;
    control::check(&bed)?;
    let mut failures = Vec::new();
    if args.faults {
        faults::measure(&bed, args, &mut failures)?;
    } else if args.sharing {
        sharing::measure(&bed, args.time, &mut failures);
    } else if let Some(mixes) = &args.fairness {
        fairness::measure(&bed, args, mixes, &mut failures);
    } else {
        one_key::measure(&bed, args, &mut failures);
        foreign::measure(&bed, args, &mut failures);
    }
    Ok(failures)
}
