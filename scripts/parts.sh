#!/bin/bash
# Parts of the tests that pass or fail as one: parts.sh PART [NAME,...]. scripts/test.sh says what they are.
# Exit status: 0 passed, 77 cannot run here.
set -euo pipefail
cd "$(dirname "$0")/.."

names=${2-}

# The state machines as they are released.
release() {
    local crate crates=()
    for crate in proto host-proto target-proto ether-proto; do crates+=(--package "roadtrain-$crate"); done
    cargo test --quiet --release "${crates[@]}"
}

instructions() {
    local log
    log=$(cargo xtask instructions 2>&1) || { echo "$log"; return 1; }
    echo "$log"
    ! grep -q '^SKIPPED ' <<<"$log" || exit 77
}

# SEEDS runs of the simulation, shared between the scenarios, a fifth of them over Ethernet, from the first seed that the
# commit draws.
seeds() {
    local scenarios=${names:-all} count
    count=$(wc -w <<<"${names//,/ }")
    [ -n "$names" ] || count=$(grep -c '^    ("' crates/sim/src/scenario.rs)
    count=$((${SEEDS:-100000} / count / 5 + 1))
    cargo build --quiet --release --package roadtrain-sim
    target/release/roadtrain-sim --seeds $((count * 4)) --scenario "$scenarios"
    target/release/roadtrain-sim --seeds $count --scenario "$scenarios" --ethernet
}

fuzz() {
    local target
    [ -n "$names" ] || names=all
    for target in ${names//,/ }; do scripts/fuzz.sh "$target" "${SECONDS_EACH:-5}"; done
}

# Packages as they are released, checked by lintian. End to end they are installed, upgraded and removed.
packages() { make --no-print-directory deb; }

lab() {
    cargo clippy --manifest-path lab/Cargo.toml --all-targets --quiet -- -D warnings
    cargo fmt --manifest-path lab/Cargo.toml --check
    cargo test --manifest-path lab/Cargo.toml
}

# The CSI driver: its own checks, then with a running target. NAMES: only these tests of tests/csi.
csi() {
    if [ -z "$names" ]; then
        cargo clippy --manifest-path csi/Cargo.toml --all-targets --quiet -- -D warnings
        cargo fmt --manifest-path csi/Cargo.toml --check
        cargo test --manifest-path csi/Cargo.toml --quiet
    fi
    tests/csi/run.sh "$names"
}

# 1,000 lives of volumes, while driver, target and attachments are killed.
csi-soak() { ROUNDS=${CSI_ROUNDS:-1000} tests/csi/run.sh csi_kills; }

lint-all() { scripts/lint.sh all; }

book() { scripts/book.sh; }

# Hundreds of faults of paths and of a disk that two targets share, and 10^6 operations of each kind on files and devices.
soak() {
    FAULTS=${FAULTS:-200} tests/e2e/run.sh faults_of_paths_are_pauses
    ROUNDS=${ROUNDS:-100} tests/e2e/run.sh shared_disk_shows_nothing_old
    OPS=${OPS:-1000000} tests/e2e/run.sh exercise_fuse_operations,exercise_neighbours_on_a_4kn_disk
}

case ${1-} in
release | instructions | seeds | fuzz | packages | lab | csi | csi-soak | lint-all | book | soak) "$1" ;;
*)
    echo "parts.sh: no part '${1-}'; scripts/test.sh lists them" >&2
    exit 2
    ;;
esac
