#!/bin/bash
# Runs the tests and adds them up: test.sh [unit] [instructions] [e2e] [ceph] [vm] [vm+ceph]; e2e, ceph and vm may be
# followed by =NAME,... to run only some; vm+ceph runs both at the same time. The end names what has failed; the last
# line says "N passed, N failed, N skipped".
set -euo pipefail
cd "$(dirname "$0")/.."

passed=0 failed=0 skipped=0
log=$(mktemp)
beside=$(mktemp)
failures=$(mktemp)
trap 'rm -f "$log" "$beside" "$failures"' EXIT

# add PASSED FAILED SKIPPED
add() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }

# name_failures LOG: keeps the lines of what has failed for the end
name_failures() { grep -E '^(FAILED |test .* FAILED$)' "$1" >>"$failures" || true; }

# Both builds at the same time: crates wait for one another, and neither keeps all cores busy. Whether they
# succeed is seen when they are used.
build() {
    {
        cargo build --quiet --release --package roadtrain --package roadtrain-capi &&
            cargo test --quiet --release --package roadtrain-engine --package roadtrain-proto --lib --no-run
    } 2>/dev/null &
    cargo test --workspace --no-run || true
    wait
}

unit() {
    local rc=0 sums
    # The state machines once more as they are released: an optimizer has got one of them wrong.
    {
        cargo test --workspace --no-fail-fast && cargo test --release --package roadtrain-proto --lib
    } 2>&1 | tee "$log" || rc=$?
    sums=$(awk '/^test result:/ {p += $4; f += $6; i += $8} END {print p + 0, f + 0, i + 0}' "$log")
    # shellcheck disable=SC2086
    add $sums
    name_failures "$log"
    # What finds out that it cannot run here passes, and has said so; perhaps in the middle of another's line.
    local said
    said=$(grep -oE 'SKIPPED [a-z0-9_:]+: ' "$log" | sort -u | wc -l)
    add "-$said" 0 "$said"
    # A crate that does not build has no failed test.
    case $sums in *' 0 '*) [ $rc = 0 ] || add 0 1 0 ;; esac
}

# What a request costs in instructions.
instructions() {
    local rc=0
    cargo xtask instructions 2>&1 | tee "$log" || rc=$?
    if grep -q '^SKIPPED ' "$log"; then add 0 0 1
    elif [ $rc = 0 ]; then add 1 0 0
    else add 0 1 0; fi
}

# add_of LOG: what it says last, "N passed, N failed, N skipped"
add_of() {
    local sums
    name_failures "$1"
    sums=$(awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ {s = $1 " " $3 " " $5} END {print s}' "$1")
    # shellcheck disable=SC2086
    add ${sums:-0 1 0}
}

# scripts FOLDER [NAMES]
scripts() {
    "tests/$1/run.sh" "${2-}" 2>&1 | tee "$log" || true
    add_of "$log"
}

# together FOLDER OTHER: neither has to be in time. The other one's lines come when the first has ended.
together() {
    "tests/$2/run.sh" >"$beside" 2>&1 &
    scripts "$1"
    wait $! || true
    cat "$beside"
    add_of "$beside"
}

[ "${1-}" != unit ] || [ $# = 1 ] || build
for suite; do
    echo "=== $suite"
    case $suite in
    unit | instructions) "$suite" ;;
    e2e | ceph | vm) scripts "$suite" ;;
    vm+ceph) together vm ceph ;;
    e2e=* | ceph=* | vm=*) scripts "${suite%%=*}" "${suite#*=}" ;;
    *) echo "test.sh: no suite '$suite'" >&2; exit 2 ;;
    esac
done
echo
cat "$failures"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
