# The commands that people need; `just` lists them. Each is one line that can be pasted, too.

# The quick start: a simulated cloud, a Kubernetes API in memory and the manager.
run *flags:
    cargo run --release -- {{flags}}

# All tests. Without Go or kubectl some say that they are skipped.
test *flags:
    cargo test --workspace --locked {{flags}}

# What the sources must pass before a commit.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo clippy --locked --package millwright -- -D warnings

# Writes golden files, CRDs and the reference anew; look at the difference.
golden:
    UPDATE_EXPECT=1 cargo test --locked -p millwright-core --test scenarios --test crds
    UPDATE_EXPECT=1 cargo test --locked -p millwright --test reference
    UPDATE_EXPECT=1 cargo test --locked -p millwright-oracles --test rows

# The manager under virtual time with faults: a sample; `just campaign --whole` is all there is.
campaign *flags:
    cargo run --release -p millwright-sim -- campaign {{flags}}

# What CI runs.
ci:
    .ci/run
