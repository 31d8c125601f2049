#!/bin/bash
# Runs parts of the tests and adds them up: test.sh PART...
#   normal          what `make test` runs: unit, e2e, one guest, one Ceph cluster
#   all             everything, as `make test-all` runs it
#   ci              normal, what the change touches, and an eighth of the rest, within CI_MINUTES (35)
#   soak            what takes hours: hundreds of faults, 10^6 operations, 200,000 seeds
#   unit            unit, golden and property tests, and the simulation
#   e2e vm ceph     end to end, guests with real Linux kernels, Ceph clusters; =NAME,... runs only these
#   unit-all e2e-all vm-all ceph-all      the same with all cases, seeds and tests
#   release         the tests of proto as they are released: an optimizer got one of its machines wrong once
#   instructions    what a request costs in instructions, counted by callgrind
#   seeds[=SCENARIO,...]   SEEDS (100000) runs of the simulation, shared between the scenarios
#   fuzz[=TARGET,...]      each fuzz target for SECONDS_EACH (5) seconds
#   packages lab lint-all  Debian packages; the laboratory's tests; lint of what is seldom built
#   csi[=NAME,...]  the CSI driver with a running target; csi-soak: 1,000 lives of volumes with kills
#   book            the documents as a book, and its links
# Parts joined by + run at the same time. The end names the slowest tests and what has failed; the last lines are
# "took: setup N s, build N s, unit N s, e2e N s, vm N s, ceph N s" and "N passed, N failed, N skipped".
# test.sh --rest lists what `normal` leaves out, piece by piece.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=target/test-logs
mkdir -p $logs
declare -A took=([setup]=0 [build]=0 [unit]=0 [e2e]=0 [vm]=0 [ceph]=0)
# Another commit tries other seeds of the simulation.
FIRST_SEED=${FIRST_SEED:-$((16#$(git rev-parse HEAD | cut -c1-8)))}
export FIRST_SEED
passed=0 failed=0 skipped=0
slowest=$logs/times failures=$logs/failures
: >$slowest
: >$failures

# timed NAME COMMAND...: adds the seconds it takes to those of the part
timed() {
    local name=$1 start=$SECONDS rc=0
    shift
    "$@" || rc=$?
    took[$name]=$((${took[$name]-0} + SECONDS - start))
    return $rc
}

# setup GROUP...: packages; says what it installs before it does
setup() { timed setup scripts/setup.sh "$@"; }

# Everything that tests of the part need, once.
is_built=
built() {
    [ -z "$is_built" ] || return 0
    is_built=1
    setup build
    timed build scripts/unit.sh build
}

# run_part PART: its output goes to a log. Runs beside others in a process of its own.
run_part() {
    local part=$1 suite=${1%%=*} names=''
    [ "$part" = "$suite" ] || names=${part#*=}
    case $suite in
    unit) UNIT_TIMES=$logs/unit.times scripts/unit.sh run ;;
    unit-all) THOROUGH=1 UNIT_TIMES=$logs/unit.times scripts/unit.sh run ;;
    e2e | vm | ceph) shell_suite "$suite" "$names" ;;
    e2e-all | vm-all | ceph-all) THOROUGH=1 shell_suite "${suite%-all}" "$names" ;;
    # Its tests are counted each, as those of the shell suites.
    csi) scripts/parts.sh csi "$names" ;;
    *) one_test "$suite" scripts/parts.sh "$suite" "$names" ;;
    esac
}

# What they use is built already.
shell_suite() {
    ROADTRAIN=$PWD/target/debug/roadtrain EXERCISE=$PWD/target/debug/roadtrain-exercise \
        LIBROADTRAIN=$PWD/target/debug/libroadtrain.so "tests/$1/run.sh" "${2-}"
}

# one_test NAME COMMAND...: a part that passes or fails as one
one_test() {
    local rc=0 start=$SECONDS name=$1
    shift
    "$@" || rc=$?
    case $rc in
    0) echo "ok      $name ($((SECONDS - start)) s)" && echo '1 passed, 0 failed, 0 skipped' ;;
    77) echo '0 passed, 0 failed, 1 skipped' ;;
    *) echo "FAILED  $name (status $rc)" && echo '0 passed, 1 failed, 0 skipped' ;;
    esac
    [ $rc = 0 ] || [ $rc = 77 ]
}

# together PART+PART...: at the same time; the output of the first is shown as it comes, the others' when they end
together() {
    local part parts suite pids=() start=$SECONDS
    IFS=+ read -ra parts <<<"$1"
    for part in "${parts[@]}"; do
        suite=${part%%=*}
        : >"$logs/$suite.log" # there before its reader
        { run_part "$part" && :; echo "$SECONDS" >"$logs/$suite.end"; } >>"$logs/$suite.log" 2>&1 &
        pids+=($!)
    done
    for part in "${parts[@]}"; do
        suite=${part%%=*}
        tail -n +1 -f --pid="${pids[0]}" "$logs/$suite.log"
        wait "${pids[0]}" || true
        pids=("${pids[@]:1}")
        took[${suite%-all}]=$((${took[${suite%-all}]-0} + $(<"$logs/$suite.end") - start))
        count "$suite"
    done
}

# count SUITE: adds up what its log says last, "N passed, N failed, N skipped", and keeps times and failures
count() {
    local log=$logs/$1.log sums
    sums=$(awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ {s = $1 " " $3 " " $5} END {print s}' "$log")
    # A part that dies says nothing.
    [ -n "$sums" ] || { sums='0 1 0' && echo "FAILED  $1: ended without a sum" >>$failures; }
    read -r p f s <<<"$sums"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    grep -E '^(FAILED |test .* FAILED$)' "$log" | sed "s/^/$1: /" >>$failures || true
    sed -n "s/^ok  *\([^ ]*\) (\([0-9.]*\) s).*/\2 $1::\1/p" "$log" >>$slowest
    case $1 in unit*) cat $logs/unit.times >>$slowest ;; esac
}

# groups PART...: packages that the parts need
groups() {
    local part
    echo build
    for part; do
        case $part in
        e2e-all | e2e=*image*) echo e2e && echo containers ;;
        e2e*) echo e2e ;;
        vm-all | vm=*libvirt* | vm=*proxmox* | vm=*lvm*) echo vm && echo e2e && echo libvirt ;;
        vm*) echo vm && echo e2e ;;
        ceph*) echo ceph && echo e2e ;;
        instructions) echo instructions ;;
        fuzz*) echo fuzz ;;
        packages) echo deb && echo e2e ;;
        csi*) echo csi && echo e2e ;;
        lint-all) echo lint ;;
        book) echo book ;;
        esac
    done | sort -u
}

# run PARTS...: each a part, or several joined by +
run() {
    local parts
    # shellcheck disable=SC2046,SC2086
    setup $(groups $(tr + " " <<<"$*"))
    for parts; do
        case $parts in unit* | e2e* | vm* | ceph*) built ;; esac
        echo "=== $parts"
        together "$parts"
    done
}

# Pieces of everything that `normal` leaves out, one a line.
rest() {
    local suite scenario target
    printf '%s\n' release instructions packages lab csi lint-all book
    for suite in e2e vm ceph; do
        "tests/$suite/run.sh" --list --thorough | sed "s/^/$suite=/"
    done
    for scenario in $(sed -n 's/^ *("\([a-z-]*\)", .*/\1/p' crates/sim/src/scenario.rs); do echo "seeds=$scenario"; done
    for target in $(sed -n '/^\[\[bin\]\]/{n; s/^name = "\(.*\)"/\1/p}' fuzz/Cargo.toml); do echo "fuzz=$target"; done
}

# eighth NUMBER: of the lines of standard input every eighth, beginning at NUMBER modulo 8; those of a suite in one line
eighth() {
    awk -v first=$(($1 % 8)) -F= 'NR % 8 != first {next}
        NF == 1 {print; next}
        {names[$1] = names[$1] (names[$1] == "" ? "" : ",") $2}
        END {for (suite in names) print suite "=" names[suite]}' | sort
}

# beyond PART: of a suite of shell tests only those that `normal` leaves out
beyond() {
    local suite=${1%%=*} name pattern patterns names=''
    case $suite in e2e | vm | ceph) ;; *) echo "$1" && return ;; esac
    IFS=, read -ra patterns <<<"${1#*=}"
    for name in $("tests/$suite/run.sh" --list --thorough); do
        for pattern in "${patterns[@]}"; do
            # shellcheck disable=SC2053
            [[ $name != $pattern ]] || { names+=,$name && break; }
        done
    done
    [ -z "$names" ] || echo "$suite=${names#,}"
}

minutes() { echo $((SECONDS / 60)); }

# What a change touches, and an eighth of the rest, as long as there is time.
ci() {
    local limit=${CI_MINUTES:-35} part base rest
    run unit e2e+vm+ceph
    base=${CI_BASE:-$(git rev-list -1 --before="$(($(git log -1 --format=%ct) - 12 * 3600))" HEAD)}
    local SEEDS=2000 SECONDS_EACH=2
    export SEEDS SECONDS_EACH
    # shellcheck disable=SC2046
    for part in $(cargo xtask affected "$base" | while read -r part; do beyond "$part"; done); do
        [ "$(minutes)" -lt "$limit" ] || { left_out "$part"; continue; }
        run "$part"
    done
    rest=$(rest | eighth $((16#$(git rev-parse HEAD | cut -c1-6))))
    for part in $rest; do
        [ "$(minutes)" -lt "$limit" ] || { left_out "$part"; continue; }
        run "$part"
    done
}

left_out() { echo "=== left out after $(minutes) minutes: $1 (make test-all runs it)"; }

main() {
    local part
    for part; do
        case $part in
        normal) run unit e2e+vm+ceph ;;
        all) run lint-all book unit-all release instructions e2e-all+vm-all+ceph-all seeds fuzz packages lab; THOROUGH=1 run csi ;;
        ci) ci ;;
        soak) FAULTS=200 ROUNDS=100 OPS=1000000 SEEDS=200000 SECONDS_EACH=60 run soak csi-soak seeds fuzz ;;
        *) run "$part" ;;
        esac
    done
    echo
    echo 'slowest tests, in seconds:'
    sort -rn $slowest | sed -n '1,20s/^/  /p'
    cat $failures
    local line='' name
    for name in setup build unit e2e vm ceph; do line+=", $name ${took[$name]} s"; unset "took[$name]"; done
    for name in $(printf '%s\n' "${!took[@]}" | sort); do line+=", $name ${took[$name]} s"; done
    echo "took: ${line#, }"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
}

case ${1-} in
--rest) rest ;;
'') sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
*) main "$@" ;;
esac
