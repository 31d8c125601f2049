#!/bin/bash
# Builds all tests in one profile and runs their programs, several at the same time: unit.sh build | run | check
#   build  builds the tests, and the programs that end-to-end tests use
#   run    runs all of them; THOROUGH=1: every case of properties, every seed of the simulation
#   check  builds, and runs the unit tests of crates that have changed since they passed, and of crates above them
# Prints a line for each program, what a failed one has said, and at the end "N passed, N failed, N skipped".
# UNIT_TIMES=FILE gets a line "SECONDS CRATE::TEST" for each test.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=target/test-logs/unit
programs=target/test-programs
passed_before=target/test-passed

# Leaves a line "CRATE KIND PROGRAM FOLDER" for each test program in $programs.
build() {
    mkdir -p target
    cargo build --workspace --all-targets --message-format=json-render-diagnostics >"$programs.json"
    jq -r 'select(.reason == "compiler-artifact" and .profile.test and .executable)
        | [(.package_id | sub(".*/"; "") | sub("[#@].*"; "")), .target.kind[0], .executable,
           (.manifest_path | sub("/Cargo.toml$"; ""))] | @tsv' "$programs.json" >"$programs.new"
    # A test target without a program of its own would be a mistake in the line above.
    [ -s "$programs.new" ] || { echo 'unit.sh: cargo names no test programs' >&2; exit 1; }
    mv "$programs.new" "$programs"
}

# Test threads of a program: more than there are cores where tests wait most of the time.
threads_of() {
    case $1 in
    *engine* | reactor* | ether-port* | cli* | front* | store* | manage*) echo 8 ;;
    *) nproc ;;
    esac
}

# run_program CRATE KIND PROGRAM FOLDER: leaves its output in a log, prints one line
run_program() {
    local crate=$1 kind=$2 program=$3 folder=$4 log rc=0 start=$EPOCHREALTIME
    log=$PWD/$logs/$crate-$kind.log
    # The times of tests are behind an option that the stable test harness has only when it is told so.
    (cd "$folder" && RUSTC_BOOTSTRAP=1 CARGO_MANIFEST_DIR=$folder RUST_BACKTRACE=1 "$program" \
        -Zunstable-options --report-time --test-threads "$(threads_of "$crate")") >"$log" 2>&1 || rc=$?
    [ $rc = 0 ] || echo "FAILED  $crate $kind: status $rc" >>"$log"
    printf '%-7s %s %s: %s, %.1f s\n' "$([ $rc = 0 ] && echo ok || echo FAILED)" "$crate" "$kind" \
        "$(sed -n 's/^test result: [a-zA-Z]*\. \([0-9]* passed; [0-9]* failed\).*/\1/p' "$log")" \
        "$(bc <<<"$EPOCHREALTIME - $start")"
    return $rc
}
export -f run_program threads_of
export logs

# run_programs: those of standard input, the longest first, three at the same time
run_programs() {
    rm -rf "$logs"
    mkdir -p "$logs"
    xargs -P 3 -L 1 bash -c 'run_program "$@" || exit 1' bash || true
    local sums said
    sums=$(cat "$logs"/*.log | awk '/^test result:/ {p += $4; f += $6; i += $8} END {print p + 0, f + 0, i + 0}')
    read -r passed failed skipped <<<"$sums"
    # Tests of the store with a cluster are run by tests/ceph.
    skipped=$((skipped - $(cat "$logs"/*.log | grep -c 'ignored, tests/ceph runs it' || true)))
    # What finds out that it cannot run here passes, and has said so; perhaps in the middle of another's line.
    said=$( (cat "$logs"/*.log | grep -oE 'SKIPPED [a-z0-9_:]+: ' || true) | sort -u | wc -l)
    # A program that dies names no failed test.
    [ "$failed" != 0 ] || failed=$(cat "$logs"/*.log | grep -c '^FAILED  ' || true)
    [ -z "${UNIT_TIMES-}" ] || times >"$UNIT_TIMES"
    failures
    echo "$((passed - said)) passed, $failed failed, $((skipped + said)) skipped"
    [ "$failed" = 0 ]
}

times() {
    local log
    for log in "$logs"/*.log; do
        sed -n "s/^test \([^ ]*\) .*\.\.\. .*<\([0-9.]*\)s>.*/\2 $(basename "$log" .log)::\1/p" "$log"
    done
}

# What failed tests have said.
failures() {
    local log
    for log in $(grep -l '^FAILED  ' "$logs"/*.log); do
        echo "--- $log"
        sed -n '/^failures:/,$p' "$log" | head -n 200
        grep -E '^(FAILED |test .* FAILED)|SKIPPED ' "$log" || tail -n 20 "$log"
    done
    grep -ohE 'SKIPPED [a-z0-9_:]+: .*' "$logs"/*.log | sort -u || true
}

# Those that take longest come first.
by_length() {
    awk '{order = 9}
        $1 == "sim" {order = 0}
        $1 == "proto" && $2 == "test" {order = 1}
        $1 == "target-engine" && $2 == "test" {order = 2}
        $1 == "cli" && $2 == "test" {order = 3}
        $2 == "lib" && ($1 == "target-engine" || $1 == "front" || $1 == "manage") {order = 4}
        {print order, $0}' | sort -sn -k 1,1 | cut -d' ' -f2-
}

# Unit tests whose program has not passed as it is.
not_passed() {
    local crate kind program folder
    while read -r crate kind program folder; do
        case $kind in lib | bin | cdylib) ;; *) continue ;; esac
        grep -qsxF "$program $(stat -c %Y "$program")" "$passed_before" || echo "$crate $kind $program $folder"
    done <"$programs"
}

check() {
    build
    not_passed >"$programs.check"
    if [ ! -s "$programs.check" ]; then
        echo 'unit tests: nothing has changed since they passed'
        return
    fi
    by_length <"$programs.check" | run_programs
    local crate kind program folder
    while read -r crate kind program folder; do
        echo "$program $(stat -c %Y "$program")" >>"$passed_before"
    done <"$programs.check"
}

case ${1-} in
build) build ;;
run)
    [ -s "$programs" ] || build
    by_length <"$programs" | run_programs
    ;;
check) check ;;
*)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
