#!/bin/bash
# Runs a fuzz target, or all of them, for some seconds each: fuzz.sh TARGET|all [SECONDS]
# Works with a stable compiler: the coverage flags are those that cargo-fuzz would set. First inputs come
# from the recordings in tests/traces; what is found stays in fuzz/corpus and fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:?"usage: fuzz.sh TARGET|all [SECONDS]"} seconds=${2:-60}

list() { sed -n '/^\[\[bin\]\]/{n; s/^name = "\(.*\)"/\1/p}' fuzz/Cargo.toml; }
targets=$target
[ "$target" != all ] || targets=$(list)

cargo xtask seeds
coverage='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing'
host=$(rustc -vV | sed -n 's/^host: //p')
# --target keeps the flags away from build scripts.
RUSTFLAGS=${coverage//$'\n'/ } cargo build --quiet --release --target "$host" \
    --manifest-path fuzz/Cargo.toml --target-dir fuzz/target

passed=0 failed=0
for target in $targets; do
    mkdir -p "fuzz/corpus/$target" fuzz/artifacts
    echo "== fuzz $target, $seconds s"
    if "fuzz/target/$host/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -max_len=16384 -verbosity=0 -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$target-" \
        "fuzz/corpus/$target" 2>fuzz/target/log; then
        grep -E 'number_of_executed_units|new_units_added' fuzz/target/log
        passed=$((passed + 1))
    else
        tail -n 40 fuzz/target/log
        failed=$((failed + 1))
    fi
done
echo "fuzz: $passed passed, $failed failed"
[ $failed = 0 ]
