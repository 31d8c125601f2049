# shellcheck shell=bash
# A small test harness. A test is a function `test_NAME` that fails when a command fails; it runs in a shell and
# a folder ($work) of its own, and what it started with `background` is ended after it.
# `skip REASON` leaves it out. `run_tests [NAME,...]` runs those that are defined, in order, prints
# ok, FAILED or SKIPPED for each, and last "N passed, N failed, N skipped". What a test says after `measured: ` is
# shown, too. Where $at_once is more than 1, so many run at the same time, but for those that the files have put
# into `alone`, because others would spoil what they measure, and those that `group_of` gives the same group run one
# after the other in one process. `before_test NAME` runs there before each.
#
# Tests in the array `thorough` run with THOROUGH=1, or when they are named. `run_tests --list` prints the names of all
# tests, `--list --thorough` those that a normal run leaves out. Logs of a test that fails stay in target/test-logs/NAME.
# SEED=N gives $RANDOM the same numbers again.

# Tests send signals and expect what they do by default. The parent process may ignore some (nohup, cron, a shell's
# background), which all children inherit, and which a shell cannot undo for itself. And mounts are ours alone: others who
# enter a network namespace meanwhile would hold them.
if [ -z "${HARNESS_OWN-}" ]; then
    export HARNESS_OWN=1
    own=(env --default-signal)
    ! unshare --mount true 2>/dev/null || own=(unshare --mount "${own[@]}")
    exec "${own[@]}" "$BASH" "$0" "$@"
fi
unset HARNESS_OWN

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly SKIPPED=77
thorough=()
declare -A group_of=()
before_test() { :; }

# Programs that the caller has not named are built, with the profile of the unit tests, and at once: they share crates. A
# suite that needs the C library adds its package and says where it is.
to_build=()
[ -n "${ROADTRAIN-}" ] || to_build+=(--package roadtrain)
[ -n "${EXERCISE-}" ] || to_build+=(--package roadtrain-exercise)
export ROADTRAIN=${ROADTRAIN:-$top/target/debug/roadtrain} EXERCISE=${EXERCISE:-$top/target/debug/roadtrain-exercise}

build_roadtrain() {
    [ ${#to_build[@]} = 0 ] || cargo build --quiet --manifest-path "$top/Cargo.toml" "${to_build[@]}" || exit
}

# refused TEXT COMMAND...: ends with status 3 and one line with that text
refused() {
    local rc=0
    "${@:2}" >refused.out 2>refused.log || rc=$?
    [ "$rc" = 3 ] || fail "status $rc: $(cat refused.log)"
    [ "$(wc -l <refused.log)" = 1 ] && grep -qE "$1" refused.log || fail "$(cat refused.log)"
}

skip() {
    echo "SKIPPED: $*"
    exit $SKIPPED
}

fail() {
    echo "failed: $*"
    exit 1
}

# background LOG COMMAND...: starts it, leaves its process in $pid
background() {
    local log=$1
    shift
    : >"$log"  # now: no test may read an earlier process's output
    "$@" >>"$log" 2>&1 &
    pid=$!
    echo "$pid" >>"$work/.pids"
}

# alive PID: one of its threads runs. What has ended may still wait for its parent, and as long as another thread than
# the first has not ended the process has its files, locks and sockets.
alive() {
    local thread
    for thread in "/proc/$1"/task/*/status; do
        ! grep -q '^State:[[:space:]]*[^ZX[:space:]]' "$thread" 2>/dev/null || return 0
    done
    return 1
}

# is_own PID: this test has started it. Numbers of processes that have ended are soon those of others.
is_own() { grep -qsF "$work" "/proc/$1/environ"; }

# holds FILE FILTER [OPTIONS of jq]: the JSON in the file is there and the filter is true of it
holds() {
    [ -s "$1" ] || fail "$1 is empty"  # to jq nothing is no failure
    jq -e "${@:3}" "$2" "$1" >/dev/null || { cat "$1"; fail "not so: $2"; }
}

# prints FILTER COMMAND...: whether the JSON that the command prints makes the filter true; it is left in printed.json
prints() { "${@:2}" >printed.json && [ -s printed.json ] && jq -e "$1" printed.json >/dev/null; }

# prints_anyway FILTER COMMAND...: the same, whatever the command's status is
prints_anyway() { "${@:2}" >printed.json || true; [ -s printed.json ] && jq -e "$1" printed.json >/dev/null; }

# eventually SECONDS COMMAND...: waits until the command succeeds
eventually() {
    local end=$((SECONDS + $1 + 1))
    while ! "${@:2}"; do
        [ $SECONDS -lt $end ] || { [ ! -e printed.json ] || cat printed.json; fail "not within $1 s: ${*:2}"; }
        sleep 0.05
    done
}

# moves_data: the first one that `status` lists moves another MiB, soon
moves_data() {
    eventually 30 prints '.[0].data_bytes' "$ROADTRAIN" status --json
    eventually 30 prints ".[0].data_bytes > $(jq '.[0].data_bytes + 1048576' printed.json)" "$ROADTRAIN" status --json
}

# moves_data_of_hosts: hosts move data at the target on $port, soon
moves_data_of_hosts() {
    eventually 30 prints '[.. | .data_bytes? // empty] | add > 0' \
        env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --json
}

# leads_to_target COUNT: so many connections to the target on $port are there
leads_to_target() {
    [ "$(awk -v "port=$(printf '%04X' "$port")" '$3 ~ ":" port "$" && $4 == "01"' /proc/net/tcp | wc -l)" -ge "$1" ]
}

# waited SINCE SECONDS: whether so many have passed since then ($EPOCHREALTIME)
waited() { [ "$(bc <<<"$EPOCHREALTIME - $1 >= $2")" = 1 ]; }

# thrice COMMAND...: it succeeds in one of three tries. For what others that use this machine may spoil now and then.
thrice() {
    local try rc
    for try in 1 2 3; do
        rc=0
        # In a process that ends with the first failure, as a test does.
        (set -euo pipefail && "$@") &
        wait $! || rc=$?
        [ $rc != 0 ] || return 0
        echo "try $try: status $rc"
    done
    fail "not once in three tries: $*"
}

# ended PID SECONDS: waits until the process has ended by itself
ended() {
    local n
    for ((n = 0; n < $2 * 20; n++)); do
        alive "$1" || return 0
        sleep 0.05
    done
    fail "process $1 did not end within $2 s"
}

# stopped PID: stops it; none of its threads runs any more when this returns
stopped() {
    local n
    kill -STOP "$1"
    for ((n = 0; n < 200; n++)); do
        ! grep -qv ') T ' /proc/"$1"/task/*/stat || { sleep 0.05; continue; }
        return 0
    done
    fail "process $1 was not stopped within 10 s"
}

# until_line LOG PATTERN PID [SECONDS]: waits for a line in a log while the process lives
until_line() {
    local n
    for ((n = 0; n < ${4:-20} * 20; n++)); do
        ! grep -qE "$2" "$1" 2>/dev/null || return 0
        alive "$3" || grep -qE "$2" "$1" || { cat "$1"; fail "ended before it said '$2'"; }
        sleep 0.05
    done
    cat "$1"
    fail "never said '$2'"
}

# A TCP port of the loopback on which no process listens. No other test gets it, of this run or another one, before the
# test has ended: a test may listen late.
free_port() {
    local port claims=/tmp/roadtrain-ports-$UID owner
    mkdir -p "$claims"
    while :; do
        port=$((20000 + SRANDOM % 12000))
        if ! (set -o noclobber && echo "$work" >"$claims/$port") 2>/dev/null; then
            # Killed runs leave claims behind, and no folders.
            owner=$(cat "$claims/$port" 2>/dev/null) || true
            [ -z "$owner" ] || [ -d "$owner" ] || rm -f "$claims/$port"
            continue
        fi
        echo "$port" >>"$work/.ports"
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}

# serve [OPTIONS]: a target on $target_address (127.0.0.1 unless set) and $port (chosen unless set) with $nqn; leaves its
# process in $target
serve() {
    port=${port:-$(free_port)} nqn=${nqn:-nqn.2026-11.test:e2e}
    background "$work/target.log" env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve \
        -a "${target_address:-127.0.0.1}" -s "$port" -n "$nqn" "$@"
    target=$pid
    until_line "$work/target.log" '^ready' "$target" "${ready_seconds:-60}"
}

# configure NAMESPACE...: writes target.toml for the address of `serve`
configure() {
    port=${port:-$(free_port)} nqn=${nqn:-nqn.2026-11.test:e2e}
    local options=() namespace
    for namespace; do options+=(--namespace "$namespace"); done
    "$ROADTRAIN" serve -a "${target_address:-127.0.0.1}" -s "$port" -n "$nqn" "${options[@]}" --print-config >target.toml.new
    mv target.toml.new target.toml
}

# serve_configured: a target as target.toml says; leaves its process in $target
serve_configured() {
    background "$work/target.log" env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve --config target.toml
    target=$pid
    until_line "$work/target.log" '^ready' "$target"
}

# attach [OPTIONS]: a block device at the Unix socket $socket, $uri; leaves its process in $attached
attach() {
    socket=${socket:-$work/nbd.sock}
    uri="nbd+unix:///?socket=$socket"
    background "$work/attach.log" "$ROADTRAIN" attach -t tcp -a "${target_address:-127.0.0.1}" -s "$port" -n "$nqn" \
        --as "nbd:unix:$socket" "$@"
    attached=$pid
    until_line "$work/attach.log" '^ready' "$attached"
}

# attach_tcp [OPTIONS]: the same at a TCP port of $nbd_address (127.0.0.1 unless set), $nbd_port if set
attach_tcp() {
    background "$work/attach.log" "$ROADTRAIN" attach -t tcp -a "${target_address:-127.0.0.1}" -s "$port" -n "$nqn" \
        --as "nbd:tcp:${nbd_address:-127.0.0.1}:${nbd_port:-0}" "$@"
    attached=$pid
    until_line "$work/attach.log" '^ready' "$attached"
    uri=$(sed -n 's/^ready \([^ ]*\).*/\1/p' "$work/attach.log")
}

# has_size BYTES: the size for a new client, soon; '' when it is refused
has_size() {
    local n size
    for n in $(seq 100); do
        size=$(nbdinfo --size "$uri" 2>>nbdinfo.log || true)
        [ "$size" != "$1" ] || return 0
        sleep 0.1
    done
    fail "'$size' bytes instead of '$1'"
}

# end_all PID...: SIGTERM first, then SIGKILL
end_all() {
    local n p
    kill -TERM "$@" 2>/dev/null || return 0
    for n in $(seq 40); do
        for p; do ! alive "$p" || { sleep 0.05 && continue 2; }; done
        return 0
    done
    kill -KILL "$@" 2>/dev/null || true
}

# become_user: a user without privileges whom this test alone knows, with numbers of others for containers. $user is its
# number, "${as_user[@]}" COMMAND... runs as this user, with the folder $work/home; $program is a copy of the program.
become_user() {
    local file
    [ "$(id -u)" = 0 ] || skip 'needs root, to become another user'
    [ "$(readlink /proc/self/ns/mnt)" != "$(readlink /proc/1/ns/mnt)" ] || skip 'needs a mount namespace, for a user of its own'
    user=54320
    mkdir etc home
    for file in passwd group subuid subgid; do
        [ -e "/etc/$file" ] || touch "/etc/$file"
        cp "/etc/$file" "etc/$file"
        case $file in
        passwd) echo "roadtrain-test:x:$user:$user::$work/home:/bin/sh" ;;
        group) echo "roadtrain-test:x:$user:" ;;
        *) echo roadtrain-test:600000:65536 ;;
        esac >>"etc/$file"
        mount --bind "etc/$file" "/etc/$file"
    done
    program=$work/home/roadtrain
    strip -o "$program" "$ROADTRAIN"
    mkdir -m 700 home/run
    chown -R $user:$user home
    chmod 711 "$work"
    as_user=(setpriv --reuid "$user" --regid "$user" --clear-groups --inh-caps=-all env -i "PATH=$PATH" "HOME=$work/home"
        "XDG_RUNTIME_DIR=$work/home/run" "TMPDIR=$work/home" LANG=C)
}

# seconds_since MICROSECONDS: so many have passed since then, with a tenth
seconds_since() {
    local tenths=$(((${EPOCHREALTIME/[.,]/} - $1 + 50000) / 100000))
    echo "$((tenths / 10)).$((tenths % 10))"
}

# is_broken_from_outside FOLDER: the test has failed there by a known fault of what it runs in. A suite with such a fault
# has a function of its own.
is_broken_from_outside() { return 1; }

# run_one TEST [again]: runs it, and once more if it was broken from outside
run_one() {
    local name=${1#test_} rc=0 start=${EPOCHREALTIME/[.,]/} seed=${SEED:-$SRANDOM} kept=$top/target/test-logs/${1#test_} seconds
    local process left=()
    work=$(mktemp -d)
    export ROADTRAIN_RUNTIME_DIR=$work/run  # what others have attached here is none of our business
    (set -euo pipefail && cd "$work" && export TMPDIR=$work && RANDOM=$seed && "$1") >"$work/.log" 2>&1 &
    wait $! || rc=$?
    for process in $(cat "$work/.pids" 2>/dev/null); do
        ! is_own "$process" || left+=("$process")
    done
    [ ${#left[@]} = 0 ] || end_all "${left[@]}"
    [ ! -e "$work/run" ] || "$ROADTRAIN" detach --all --timeout 5 >/dev/null 2>&1 || true
    seconds=$(seconds_since "$start")
    rm -rf "$kept"
    case $rc in
    0)
        passed=$((passed + 1))
        echo "ok      $name ($seconds s)"
        sed -n 's/^measured: /        /p' "$work/.log"
        ;;
    "$SKIPPED") skipped=$((skipped + 1)) && echo "SKIPPED $name: $(sed -n 's/^SKIPPED: //p' "$work/.log")" ;;
    *)
        if [ "${2-}" != again ] && is_broken_from_outside "$work"; then
            echo "again   $name ($seconds s): $(is_broken_from_outside "$work")"
            give_back_ports
            rm -rf "$work"
            before_test "$name"
            run_one "$1" again
            return
        fi
        failed=$((failed + 1))
        echo "FAILED  $name (status $rc, $seconds s)"
        keep_logs "$kept"
        {
            echo "SEED=$seed, ports: $(cat "$work/.ports" 2>/dev/null | xargs), logs: $kept"
            for log in "$work/.log" "$work"/*.log; do
                [ ! -s "$log" ] || { echo "--- ${log##*/}"; tail -n 40 "$log"; }
            done
        } | sed 's/^/        /'
        ;;
    esac
    give_back_ports
    rm -rf "$work"
}

# The ports that the test has had.
give_back_ports() {
    [ ! -e "$work/.ports" ] || (cd "/tmp/roadtrain-ports-$UID" && xargs rm -f) <"$work/.ports"
}

# keep_logs FOLDER: what a test has written, but for disks; its own output is output.log there
keep_logs() {
    mkdir -p "$1"
    (cd "$work" && find . -xdev -type f -size -8M -exec cp --parents -t "$1" {} + 2>/dev/null)
    mv "$1/.log" "$1/output.log"
}

# is_thorough NAME: a normal run leaves it out
is_thorough() {
    case " ${thorough[*]-} " in *" $1 "*) return 0 ;; esac
    return 1
}

# select_tests [NAME,...]: leaves the tests that are to run in $names, and how many are left out in $left_out. A name may
# be a pattern of the shell.
select_tests() {
    local name pattern all patterns
    names=() left_out=0
    IFS=, read -ra patterns <<<"$1"
    all=$(declare -F | awk '$3 ~ /^test_/ {print substr($3, 6)}')
    for name in "${thorough[@]}"; do
        grep -qxF "$name" <<<"$all" || { echo "there is no test '$name'" >&2; exit 2; }
    done
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053
        for name in $all; do [[ $name != $pattern ]] || continue 2; done
        echo "there is no test '$pattern'" >&2
        exit 2
    done
    for name in $all; do
        if [ -n "$1" ]; then
            # shellcheck disable=SC2053
            for pattern in "${patterns[@]}"; do [[ $name != $pattern ]] || { names+=("$name") && break; }; done
        elif [ "${THOROUGH-}" != 1 ] && is_thorough "$name"; then
            left_out=$((left_out + 1))
        else
            names+=("$name")
        fi
    done
}

# list_tests [--thorough]: their names
list_tests() {
    local name
    THOROUGH=1 select_tests ''
    for name in "${names[@]}"; do
        [ "${1-}" != --thorough ] || is_thorough "$name" || continue
        echo "$name"
    done
}

# run_tests [NAME,...] | --list [--thorough]
run_tests() {
    local name names left_out
    [ "${1-}" != --list ] || { list_tests "${2-}"; return; }
    select_tests "${1-}"
    [ $left_out = 0 ] || echo "$left_out tests only in test-all"
    [ "${at_once:-1}" = 1 ] || [ ${#names[@]} -lt 2 ] || { run_at_once "${names[@]}"; return; }
    # Behind the caller's || or && a shell ignores `set -e`, in all that it calls.
    (set -e && { false; true; }) & ! wait $! || { echo 'run_tests: failing commands would not end a test here' >&2; exit 2; }
    passed=0 failed=0 skipped=0
    for name in "${names[@]}"; do
        before_test "$name"
        run_one "test_$name"
    done
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
}

# run_at_once NAME...: each, or each group, in a process of its own, which is $0 again
run_at_once() {
    local name group groups=() others=() last=()
    local -A members=()
    for name; do
        case " ${alone[*]-} " in *" $name "*) last+=("$name") && continue ;; esac
        group=${group_of[$name]-$name}
        [ -n "${members[$group]-}" ] || groups+=("$group")
        members[$group]+=${members[$group]:+,}$name
    done
    for group in "${groups[@]}"; do others+=("${members[$group]}"); done
    export HARNESS_CHILD=1
    # What one test says is not to be torn apart by another.
    # shellcheck disable=SC2016
    local each=(-I{} bash -c 'printf "%s\n" "$("$0" "$1" 2>&1)"' "$0" {})
    {
        [ ${#others[@]} = 0 ] || printf '%s\n' "${others[@]}" | xargs -P "$at_once" "${each[@]}"
        [ ${#last[@]} = 0 ] || printf '%s\n' "${last[@]}" | xargs "${each[@]}"
    } | awk -v tests=$# '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p += $1; f += $3; s += $5; next }
        { print; fflush() }
        END {
            f += tests - p - f - s  # a test that has died reports nothing
            print p + 0 " passed, " f " failed, " s + 0 " skipped"; exit f > 0
        }'
}

# run_folder FOLDER [NAME,...] | FOLDER --list [--thorough]: builds the programs that are not given, and runs what the
# folder's files define
run_folder() {
    local file
    for file in "$1"/test_*.sh; do
        # shellcheck source=/dev/null
        . "$file"
    done
    case ${2-} in
    --list) ;;
    *) (select_tests "${2-}") && build_roadtrain || exit ;;
    esac
    run_tests "${@:2}"
}
