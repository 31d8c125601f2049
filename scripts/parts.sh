#!/bin/bash
# Parts of the tests that pass or fail as one: parts.sh PART [NAME,...]. scripts/test.sh says what they are.
# Exit status: 0 passed, 77 cannot run here.
set -euo pipefail
cd "$(dirname "$0")/.."

names=${2-}

# The state machines as they are released.
release() { cargo test --quiet --release --package roadtrain-proto; }

instructions() {
    local log
    log=$(cargo xtask instructions 2>&1) || { echo "$log"; return 1; }
    echo "$log"
    ! grep -q '^SKIPPED ' <<<"$log" || exit 77
}

# SEEDS runs of the simulation, shared between the scenarios, from a first seed that the commit draws.
seeds() {
    local scenarios=${names//,/ } first=${FIRST_SEED:-$((16#$(git rev-parse HEAD | cut -c1-8)))} program count
    [ -n "$scenarios" ] || scenarios=$(sed -n 's/^ *("\([a-z-]*\)", .*/\1/p' crates/sim/src/scenario.rs | xargs)
    cargo build --quiet --release --package roadtrain-sim
    program=target/release/roadtrain-sim
    count=$((${SEEDS:-100000} / $(wc -w <<<"$scenarios") / 5))
    echo "seeds: $((count * 5)) of each scenario from $first on, a fifth of them over Ethernet"
    # shellcheck disable=SC2086
    printf "%s --seeds $((count * 4))\n%s --seeds $count --ethernet\n" $(printf '%s\n' $scenarios | sed 'p') |
        xargs -P "$(nproc)" -L 1 $program --first "$first" --scenario
}

fuzz() {
    local target
    [ -n "$names" ] || names=all
    for target in ${names//,/ }; do scripts/fuzz.sh "$target" "${SECONDS_EACH:-5}"; done
}

# Packages are made, checked by lintian, installed, upgraded and removed.
packages() {
    make --no-print-directory deb
    tests/e2e/run.sh 'packages_*'
}

lab() {
    cargo clippy --manifest-path lab/Cargo.toml --all-targets --quiet -- -D warnings
    cargo fmt --manifest-path lab/Cargo.toml --check
    cargo test --manifest-path lab/Cargo.toml
}

lint-all() { scripts/lint.sh all; }

# Hundreds of faults of paths, and 10^6 operations of each kind on files and devices.
soak() {
    FAULTS=${FAULTS:-200} tests/e2e/run.sh faults_of_paths_are_pauses
    OPS=${OPS:-1000000} tests/e2e/run.sh exercise_fuse_operations
}

case ${1-} in
release | instructions | seeds | fuzz | packages | lab | lint-all | soak) "$1" ;;
*)
    echo "parts.sh: no part '${1-}'; scripts/test.sh lists them" >&2
    exit 2
    ;;
esac
