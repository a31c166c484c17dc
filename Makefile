# The two commands are `make run` and `make test`.

.PHONY: run check virtual-time test nightly redis browser python servers model sim-driver controls threads cost soak \
    mutants mutants-driver bounds api docs lint

# The main job on the embedded default: needs nothing but Rust and its linker.
run:
	cargo run -p redlock-examples --bin quickstart

# Each step names the whole workspace, even where it runs only a part of it. The dependencies then have the same
# features in every step, and are built once.
TESTS = cargo test --workspace --all-features
# What `make check` compiles is linted at the same time.
LINTED = $(CURDIR)/.ci/rustc-linted

# What a change must pass, apart from `make test`: controls that fit the sources, imports, format, lints, documentation,
# the lists of the public API, and what is tested in virtual time. Needs no server.
check: export RUSTC_WORKSPACE_WRAPPER = $(LINTED)
check: python
	.ci/check-imports
	.ci/controls --check
	@$(MAKE) --no-print-directory lint virtual-time

# Three of the simulator's worlds, with a seed each. `.ci/nightly` has all of them.
virtual-time:
	SIM_RUNS=$${SIM_RUNS:-1} SIM_CONFIG=$${SIM_CONFIG:-within-storm,within-promotions,within-cluster} \
	    $(TESTS) --test properties --test model --test sim --test line

# Installs redis-server if there is none, then runs the tests that a user wants to see pass (see .ci/test).
test: redis
	$(TESTS) --no-run
	@.ci/test

# Everything that takes too long for each push, and a report (see .ci/nightly).
nightly: redis python
	@.ci/nightly

# The tests need this.
redis:
	@command -v "$${REDIS_SERVER:-redis-server}" >/dev/null || sh .ci/install redis

# The tests of the pages need this. chromedriver knows where the browser is, unless CHROMIUM says so.
browser:
	@command -v "$${CHROMEDRIVER:-chromedriver}" >/dev/null || sh .ci/install browser

# The checks of the sources need this.
python:
	@command -v python3 >/dev/null || sh .ci/install python

# The driver's tests on each of these servers, and a table of the results. `make test` runs them on the system's
# Redis. One server alone: `make servers SERVERS=redis-8.2`.
SERVERS ?= redis-6.2 redis-7.0 redis-8.2 redis-8.10 valkey-9.1
servers: redis
	@.ci/test-servers $(SERVERS)

# The core, and the rule of the line, in every order of events, in small worlds.
model:
	cargo test -p redlock-core --release --test model
	cargo test -p redlock-tokio --all-features --release --test line

# The whole driver against hours of faults, in virtual time: `make sim-driver SEEDS=1000`.
SEEDS ?= 100
sim-driver:
	SIM_SEEDS=$(SEEDS) cargo test --release -p redlock-tokio --all-features --test sim -- --nocapture

# The threads of one process in many orders. SCHEDULES is for each scenario: `make threads SCHEDULES=100000`. Another
# SEED chooses other schedules. SCENARIO runs one scenario alone, and REPLAY one schedule of it.
#
# The option is no feature, so that `--all-features` has nothing of it. The compiler adds it to the crates of the
# workspace alone (.ci/rustc-shuttle), so no dependency is built again.
threads: PROFILE = --release
threads:
	RUST_BACKTRACE=0 RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/.ci/rustc-shuttle THREADS_SCHEDULES=$(SCHEDULES) \
	    THREADS_SEED=$(SEED) THREADS_REPLAY=$(REPLAY) \
	    cargo test --workspace --all-features $(PROFILE) --lib -- --show-output $(or $(SCENARIO),threads::)

# What a lock costs in instructions and allocations, beside the committed table. Fails if something costs over 3 % more.
# `make cost COST=--renew` writes the table. Instructions are counted by valgrind, under which rustix must read the
# clock by libc.
cost: redis
	RUSTFLAGS="--cfg rustix_use_libc" cargo bench -q -p redlock-axum --all-features --bench cost --target-dir target/cost \
	    -- $(COST)

# Takes one rule at a time out of the sources, and expects a test to notice: `make controls CONTROLS=newest-first`.
controls: python
	@.ci/controls $(CONTROLS)

# Hundreds of tasks in several processes, against servers that fail in every way: `make soak
# MINUTES=10`. SEED replays the faults of an earlier run. First come short runs that must find
# something: without the lock, with foreign clients that do not lock, with nodes that forget or that vote too
# soon, with leaks, with holders that learn of no loss, and with waiters that never try. A few failovers need not make
# two holders, so a run that finds none is followed by a longer one. The runs over a Sentinel group and over a cluster,
# whose masters fail over, share the time of the main run. The foreign clients are fetched with npm and pip; a line says
# NOT RUN where that is not possible.
MINUTES ?= 1
TOPOLOGIES = sentinel cluster
SOAK = cargo test --workspace --all-features --test soak
soak: redis
	$(SOAK) --no-run
	for it in no-lock forget trust leak deaf idle; do SOAK_BREAK=$$it SOAK_SECONDS=10 $(SOAK) || exit; done & main=$$!; \
	    SOAK_BREAK=foreign SOAK_SECONDS=5 $(SOAK) && \
	    for it in $(TOPOLOGIES); do \
	        for seconds in 5 20 60; do SOAK_TOPOLOGY=$$it SOAK_BREAK=trust SOAK_SECONDS=$$seconds $(SOAK) && break; done || exit; \
	    done && wait $$main
	export SOAK_SECONDS=$$(($(MINUTES) * 60)) SOAK_SEED=$(SEED); \
	    jobs=; for it in masters $(TOPOLOGIES); do SOAK_TOPOLOGY=$$it $(SOAK) & jobs="$$jobs $$!"; done; \
	    failed=0; for it in $$jobs; do wait $$it || failed=1; done; exit $$failed

# Changes the core one expression at a time, and expects its tests to notice. The tests are the
# quick ones: those beside the code, and the properties with fewer cases. The text that `Display` writes is
# for people to read, and not tested. A change that makes a test wait for ever is noticed too. cargo-mutants then exits
# with 3, whether or not other changes survived, so `missed.txt` decides. On a busy machine: `make mutants TIMEOUT=90`.
# A part of the changes: `make mutants MUTANTS="--shard 0/8 --sharding round-robin"`. `JOBS=2` tries two at once.
# `MUTANTS=--in-place` changes these sources instead of a copy, and allows no JOBS. The options of the build go by
# --cargo-arg, so that only these tests are built.
# Needs cargo-mutants: cargo install cargo-mutants --locked
mutants: TIMEOUT = 30
mutants:
	@mkdir -p target
	PROPTEST_CASES=$${PROPTEST_CASES:-300} cargo mutants --package redlock-core \
		--file 'redlock-core/src/**/*.rs' --exclude-re 'impl fmt::Display' \
		$(addprefix --cargo-arg=,--lib --test=properties) \
		$(JOBS:%=--jobs %) --timeout $(TIMEOUT) --output target $(MUTANTS) \
		|| test $$? = 3 && test ! -s target/mutants.out/missed.txt

# The same for the lanes, the lease cell and the queue of the driver. The tests are those beside the code and over nodes
# in memory, and a seed of some worlds of the simulator. The driver is optimized a little, since these tests compute
# much. A change takes about 15 s. The stand-in of a lane is compiled for `make threads` only.
# Also needs cargo-nextest, which can stop at the first failure: cargo install cargo-nextest --locked
mutants-driver: TIMEOUT = 90
mutants-driver: export NEXTEST_PROFILE = mutants
mutants-driver: export SIM_SEEDS = 1
mutants-driver: export SIM_RUNS = 1
mutants-driver: export SIM_UNSHRUNK = 1
mutants-driver: export SIM_CONFIG = within,within-storm,within-unrenewed,within-durable,within-sentinels,within-cluster
mutants-driver:
	@mkdir -p target/mutants-driver
	cargo mutants --package redlock-tokio --all-features --test-tool nextest \
		--cargo-arg=--config=profile.dev.package.redlock-tokio.opt-level=1 \
		$(addprefix --cargo-arg=,--lib --test=memory --test=sim) \
		$(foreach it,lane requests queue,--file 'redlock-tokio/src/engine/$(it).rs' \
		--file 'redlock-tokio/src/engine/$(it)/**/*.rs') \
		--exclude '**/stand_in.rs' --exclude-re 'impl fmt::(Display|Debug)' \
		$(JOBS:%=--jobs %) --timeout $(TIMEOUT) \
		--output target/mutants-driver $(MUTANTS) \
		|| test $$? = 3 && test ! -s target/mutants-driver/mutants.out/missed.txt

# Whether the libraries compile with the oldest dependencies and the oldest Rust that their manifests allow, and with
# every set of features.
bounds:
	@.ci/check-bounds

# Writes the list of each library's public API. `.ci/run` prints the difference, and fails if a list is out of
# date.
api: python
	@.ci/check-api --renew

# These must be clean before a commit. The code that only `make threads` compiles is compiled, too.
lint: export RUSTC_WORKSPACE_WRAPPER = $(LINTED)
lint: python
	cargo fmt --all --check
	$(TESTS) --tests --bench '*' --no-run
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/.ci/rustc-shuttle $(TESTS) --exclude redlock-core --lib --no-run
	@$(MAKE) --no-print-directory docs
	.ci/check-api

# The documentation of each crate alone, as its users build it: in the whole workspace, the features that another crate
# or a test turns on would hide what is missing.
docs: export RUSTDOCFLAGS = -D warnings
docs:
	for it in core tokio cli tower axum; do for features in --no-default-features --all-features; do \
	    cargo doc --quiet --no-deps --package redlock-$$it $$features || exit; done; done
