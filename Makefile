# The two commands are `make run` and `make test`.

.PHONY: run test redis lint

# The main job on the embedded default: needs nothing but Rust and a C compiler.
run:
	cargo run -p redlock-examples --bin quickstart

# Installs redis-server if there is none, then runs the whole test suite.
test: redis
	cargo test --workspace --all-features
	cargo test -p redlock-tokio --test bad_input # without TLS, which the above has on

# What the tests need.
redis:
	@command -v "$${REDIS_SERVER:-redis-server}" >/dev/null || sh .ci/install-redis

# What must be clean before a commit.
lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps
