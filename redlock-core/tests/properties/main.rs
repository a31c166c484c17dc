//! Properties that hold for every input, tried on random ones.
//!
//! Each test draws a fresh seed; a failure prints the command that replays it. `PROPTEST_CASES` sets the number of
//! cases of every test but the negative controls (as `make mutants` does, to be quick).

use std::{
    env,
    fmt::Debug,
    hash::{BuildHasher, RandomState},
};

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestCaseResult, TestRng, TestRunner},
};

mod arithmetic;
mod drive;
mod reference;
mod retry;
mod said;

/// Checks a property on `cases` random inputs.
fn check<S>(cases: u32, inputs: &S, property: impl Fn(S::Value) -> TestCaseResult)
where
    S: Strategy,
    S::Value: Debug,
{
    let seed = seed();
    let cases = env::var("PROPTEST_CASES").map_or(cases, |cases| {
        cases.parse().expect("PROPTEST_CASES is a number")
    });
    if let Err(error) = runner(seed, cases).run(inputs, property) {
        let test = std::thread::current();
        let test = test.name().expect("libtest names its threads");
        panic!(
            "{error}\nreplay: REDLOCK_SEED={seed} PROPTEST_CASES={cases} \
             cargo test -p redlock-core --test properties -- --exact {test}"
        );
    }
}

/// Returns whether one of at most `cases` random inputs shows something. For negative controls: the search ends
/// with the first such input, and `PROPTEST_CASES` does not shorten it.
fn finds<S: Strategy>(cases: u32, inputs: &S, shows: impl Fn(S::Value) -> bool) -> bool {
    let seed = seed();
    // To be seen if the test fails.
    println!("REDLOCK_SEED={seed}");
    let mut runner = runner(seed, cases);
    (0..cases).any(|_| {
        let input = inputs.new_tree(&mut runner);
        shows(input.expect("most inputs are possible").current())
    })
}

fn seed() -> u64 {
    env::var("REDLOCK_SEED").map_or_else(
        |_| RandomState::new().hash_one("seed"),
        |seed| seed.parse().expect("REDLOCK_SEED is a number"),
    )
}

fn runner(seed: u64, cases: u32) -> TestRunner {
    let config = Config {
        cases,
        // The seed is printed instead.
        failure_persistence: None,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&u64::to_le_bytes(seed));
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}
