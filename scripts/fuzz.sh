#!/bin/bash
# Runs a fuzz target, or all of them, for some seconds each: fuzz.sh TARGET|all [SECONDS]
# Works with a stable compiler: the coverage flags are those that cargo-fuzz would set. First inputs come
# from the recordings in tests/traces and from fuzz/src/inputs.rs; what is found stays in fuzz/corpus and
# fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:?"usage: fuzz.sh TARGET|all [SECONDS]"} seconds=${2:-60}

list() { sed -n '/^\[\[bin\]\]/{n; s/^name = "\(.*\)"/\1/p}' fuzz/Cargo.toml; }
targets=$target
[ "$target" != all ] || targets=$(list)

coverage='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing'
host=$(rustc -vV | sed -n 's/^host: //p')
# --target keeps the flags away from build scripts.
RUSTFLAGS=${coverage//$'\n'/ } cargo build --quiet --release --target "$host" \
    --manifest-path fuzz/Cargo.toml --target-dir fuzz/target
cargo xtask seeds
# Names of methods, parameters and values, as the page has them that a test compares with the program.
grep '^| `' docs/reference/rpc.md | grep -o '`[A-Za-z0-9_]*`' | sort -u | tr '`' '"' >fuzz/target/rpc.dict

# run TARGET: says what came of it in one piece, since others run at the same time
run() {
    local target=$1 log=fuzz/target/$1.log length=16384 dictionary=()
    [ ! -e "fuzz/target/$target.dict" ] || dictionary=(-dict="fuzz/target/$target.dict")
    # What has a bound of its own is to reach it: 256 KiB of a request.
    [ "$target" != rpc ] || length=300000
    mkdir -p "fuzz/corpus/$target" fuzz/artifacts
    if "fuzz/target/$host/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -max_len=$length "${dictionary[@]}" -verbosity=0 -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$target-" \
        "fuzz/corpus/$target" 2>"$log"; then
        echo "ok      $target: $(sed -n 's/^stat::\(number_of_executed_units\|new_units_added\): */\1 /p' "$log" | xargs)"
    else
        printf 'FAILED  %s\n%s\n' "$target" "$(tail -n 40 "$log")"
        return 1
    fi
}

echo "== fuzz, $seconds s each"
export -f run
export host seconds
# shellcheck disable=SC2086
printf '%s\n' $targets | xargs -P "$(nproc)" -I TARGET bash -c 'run TARGET'
