# shellcheck shell=bash
# SIGTERM and SIGINT at inconvenient times: everything ends soon, says how it went, and leaves nothing behind.

# ends SIGNAL PID STATUS [SECONDS]: the process ends by the signal, with that status. A target gives its last flush a
# minute, a host its shutdown ten seconds.
ends() {
    local rc=0
    kill -"$1" "$2"
    ended "$2" "${4:-60}"
    wait "$2" || rc=$?
    [ $rc = "$3" ] || fail "status $rc instead of $3 after SIG$1"
}

# load URI: an NBD client that is busy for long; leaves its process in $pid
load() {
    background fio.log fio --name=load --ioengine=nbd --uri="$1" --rw=randrw --bs=4k --iodepth=32 --size=32M \
        --time_based --runtime=600 --eta=never
    moves_data
    alive "$pid" || { cat fio.log; fail 'the load does not run'; }
}

# bench_load [OPTIONS]: a load generator that is busy for long; leaves its process in $pid
bench_load() {
    background bench.log "$ROADTRAIN" bench --rw randrw --bs 4k --depth 32 --lanes 2 --seconds 600 "$@"
}

test_signal_attach_with_a_busy_client() {
    local signal
    serve --namespace "file:$work/disk.img,size=64MiB"
    for signal in TERM INT; do
        attach
        load "$uri"
        ends "$signal" "$attached" 0
        [ ! -e "$socket" ] || fail 'the socket is still there'
        ended "$pid" 30
    done
}

# The target ends although hosts are busy, its port is free at once, and they can end while it is away.
test_signal_serve_with_busy_hosts() {
    local client generator
    serve --namespace "file:$work/disk.img,size=64MiB"
    attach
    load "$uri"
    client=$pid
    bench_load -t tcp -a 127.0.0.1 -s "$port" -n "$nqn"
    generator=$pid
    eventually 30 prints '[.[0].subsystems[0].controllers[].io_queues] | length == 2 and all(. > 0)' \
        env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --json
    ROADTRAIN_RUNTIME_DIR=$work/served moves_data
    ends TERM "$target" 0
    serve --namespace "file:$work/disk.img,size=64MiB"
    ends INT "$target" 0
    ends INT "$generator" 1 30
    grep -q interrupted bench.log
    ends TERM "$attached" 1  # with outstanding requests
    grep -q 'requests that the target did not answer' attach.log
    [ ! -e "$socket" ] || fail 'the socket is still there'
    ended "$client" 30
}

# own_moves_data: the target that the bench $pid has started is busy; leaves its process in $own
own_moves_data() { eventually 30 has_own && eventually 30 is_busy "$own"; }
has_own() { own=$(pgrep -P "$pid"); }
is_busy() { [ "$(awk '{print $14 + $15}' "/proc/$1/stat")" -gt 50 ]; }

# What was measured until then is reported.
test_signal_bench_with_its_own_target() {
    local signal own
    for signal in TERM INT; do
        bench_load --namespace mem:16MiB --json
        own_moves_data
        ends "$signal" "$pid" 0
        holds bench.log '.errors == 0 and .iops > 0 and .seconds < 300'
        ended "$own" 5
    done
}

# Ctrl-C reaches every process of a group.
test_signal_bench_as_a_group() {
    local own
    background bench.log setsid "$ROADTRAIN" bench --namespace mem:16MiB --rw randread --seconds 600 --json
    own_moves_data
    kill -INT -- "-$pid"
    ended "$pid" 30
    wait "$pid" || fail "status $?"
    holds bench.log '.errors == 0 and .iops > 0'
}

# A bench that is killed takes its target along.
test_signal_bench_killed() {
    local own
    bench_load --namespace mem:16MiB
    own_moves_data
    kill -KILL "$pid"
    ended "$own" 60
}

# A target that does not answer is not waited for.
test_signal_while_connecting() {
    serve --namespace mem:64MiB
    stopped "$target"
    bench_load -t tcp -a 127.0.0.1 -s "$port" -n "$nqn"
    local generator=$pid
    background attach.log "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --as "nbd:unix:$work/nbd.sock"
    eventually 30 leads_to_target 2
    ends TERM "$pid" 1
    ends INT "$generator" 1
    [ ! -e "$work/nbd.sock" ] || fail 'the socket is still there'
    kill -CONT "$target"
}

# closed STATUSES TEXT COMMAND...: the command ends soon after its terminal was closed, with one of the statuses; 129 is
# SIGHUP's. With $how=--alone nothing but the terminal says so.
closed() {
    local rc=0
    # shellcheck disable=SC2086 # no word where it is empty
    python3 "$top/tests/lib/close_terminal.py" ${how-} 30 "${@:2}" >closed.out 2>closed.log || rc=$?
    [ $rc = 0 ] || { cat closed.log; fail "$(cat closed.out): ${*:3}"; }
    [[ " $1 " = *" $(tail -n 1 closed.out) "* ]] || { cat closed.log; fail "status $(cat closed.out): ${*:3}"; }
}

# Commands that wait for input, a signal or time end with their terminal.
test_signal_the_terminal_is_closed() {
    local own=(-t tcp -a 127.0.0.1 -s) how
    serve --namespace mem:16MiB
    own+=("$port" -n "$nqn")
    export ROADTRAIN_RUNTIME_DIR=$work/served
    for how in '' --alone; do
        closed '0 1' target0 "$ROADTRAIN" top
        closed '1 2 129' '' "$ROADTRAIN" keys show -
    done
    how=
    closed '1 129' '' "$ROADTRAIN" top --once --interval 60s
    closed '1 129' serving "$ROADTRAIN" status --watch=60
    closed 0 ready "$ROADTRAIN" serve -a 127.0.0.1 -s 0 -n nqn.2026-11.test:other --namespace mem:16MiB
    closed 0 ready "$ROADTRAIN" attach "${own[@]}" --as "nbd:unix:$work/terminal.sock"
    [ ! -e "$work/terminal.sock" ] || fail 'the socket is still there'
    closed '0 1' IOPS "$ROADTRAIN" bench --namespace mem:16MiB --rw randread --seconds 600
    # Without a terminal SIGHUP reads the configuration again.
    kill -HUP "$target"
    eventually 30 grep -q 'reloaded' "$work/target.log"
}

# What does not answer is not waited for when the terminal is gone, and nothing is killed for that.
test_signal_the_terminal_is_closed_while_nothing_answers() {
    serve --namespace mem:16MiB
    attach --id kept
    stopped "$attached"
    closed 1 '' "$ROADTRAIN" detach kept --timeout 600s
    alive "$attached"
    stopped "$target"
    closed 1 '' "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --as "nbd:unix:$work/other.sock" --background
    kill -CONT "$target" "$attached"
    ended "$attached" 30
}
