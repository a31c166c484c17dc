use crate::{args::Args, cell::Cell, test_bed::TestBed, workload::Workload};

/// Many tasks, one key.
pub(super) fn measure(bed: &TestBed, args: &Args, failures: &mut Vec<String>) {
    println!(
        "## One key, five nodes, {:.1} s each\n\n\
         A hold of 1 ms spins on the clock and yields, since a timer would not be as precise. A wait \
         that the end cut off counts with what it had lasted. A gap is the time from a holder's \
         leaving, before it releases, to the next one's entry, in whatever process; a round trip is \
         {}. Commands are those of all nodes together, and of scripts too: without contention an \
         entry takes 20.\n",
        args.time.as_secs_f64(),
        bed.round_trip
    );
    for group in Workload::groups() {
        let mut cells = Vec::new();
        for workload in group {
            for &contestant in &args.contestants {
                match Cell::measure(bed, contestant, workload, args.time) {
                    Ok(cell) => {
                        failures.extend(cell.complaints());
                        cells.push(cell);
                    }
                    Err(error) => failures.push(format!("{contestant} with {workload}: {error}")),
                }
            }
        }
        let Workload {
            processes, hold, ..
        } = group[0];
        let hold = hold.as_millis();
        let table = Cell::table(&cells, bed.round_trip.us);
        println!("### Processes: {processes}, hold {hold} ms\n\n{table}\n");
    }
}
