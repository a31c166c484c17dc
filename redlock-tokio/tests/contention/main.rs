//! Clients that want one key or several without a break, and nothing that fails: how many turns of others does one of
//! them see while it waits? In virtual time.
//!
//! `SIM_SEEDS` is how many seeds each test tries, and `SIM_SEED` runs one alone.

mod crowd;
mod master;
#[path = "../../src/engine/turns.rs"]
mod turns;
mod world;

use std::{env, ops::Range};

use crowd::Crowd;

/// How many seeds are tried if `SIM_SEEDS` does not say more.
const SEEDS: u64 = 3;

/// How many turns of each other client one wait may see. In order, it would see one. Chance decides among more than
/// four clients.
const MOST_TURNS_OF_EACH: u64 = 15;

/// How many turns of each other client a wait for several keys may see.
const MOST_TURNS_BESIDE_SEVERAL: u64 = 30;

#[test]
fn a_wait_sees_a_bounded_number_of_turns_of_others() {
    for seed in seeds() {
        for clients in [2, 4, 8] {
            let crowd = Crowd::for_one_key(clients);
            let waits = world::run(crowd, seed);
            let most = MOST_TURNS_OF_EACH * crowd.others();
            assert!(
                waits.turns <= most && waits.overlaps == 0,
                "\n{clients} clients, at most {most} turns: {waits:?}\nreplay: SIM_SEED={seed}"
            );
        }
    }
}

#[test]
fn a_wait_for_several_keys_sees_a_bounded_number_of_turns_of_others() {
    for seed in seeds() {
        for crowd in busy_keys(true) {
            let waits = world::run(crowd, seed);
            let most = MOST_TURNS_BESIDE_SEVERAL * crowd.others();
            assert!(
                waits.turns <= most && waits.overlaps == 0,
                "\n{crowd:?}, at most {most} turns: {waits:?}\nreplay: SIM_SEED={seed}"
            );
        }
    }
}

#[test]
fn a_wait_for_several_keys_that_are_not_gathered_sees_more_turns_of_others() {
    for crowd in busy_keys(false) {
        let waits = world::run(crowd, 0);
        let most = MOST_TURNS_BESIDE_SEVERAL * crowd.others();
        assert!(waits.turns > most, "{crowd:?}: {waits:?}");
    }
}

/// Some clients that want four keys, beside others that want one of them each.
fn busy_keys(gathers: bool) -> [Crowd; 2] {
    [(1, 16), (4, 8)].map(|(several, single)| Crowd {
        keys: 4,
        several,
        single,
        gathers,
    })
}

fn seeds() -> Range<u64> {
    let number = |name| {
        let text = env::var(name).ok()?;
        Some(
            text.parse()
                .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        )
    };
    number("SIM_SEED").map_or_else(
        || 0..number("SIM_SEEDS").unwrap_or(SEEDS).max(1),
        |seed: u64| seed..seed + 1,
    )
}
