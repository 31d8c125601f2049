# shellcheck shell=bash
# Several paths to one subsystem, as options and status have them.

# shellcheck source=../lib/links.sh
. "$top/tests/lib/links.sh"

# serve_twice: a target with two listeners, at $port and $other_port
serve_twice() {
    serve --namespace mem:64MiB
    other_port=$(free_port)
    ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl listener add -a 127.0.0.1 -s "$other_port" >listen.log
}

# attach_paths [OPTIONS]: by both; leaves its process in $attached
attach_paths() {
    socket=$work/nbd.sock uri="nbd+unix:///?socket=$work/nbd.sock"
    background "$work/attach.log" "$ROADTRAIN" attach -t tcp -a "127.0.0.1:$port" -a "127.0.0.1:$other_port" \
        -n "$nqn" --as "nbd:unix:$socket" "$@"
    attached=$pid
    until_line "$work/attach.log" '^ready' "$attached"
}

test_paths_carry_verified_load() {
    local policy
    serve_twice
    for policy in latency round-robin queue-depth; do
        attach_paths --path-policy "$policy"
        fio --name=verify --ioengine=nbd --uri="$uri" --rw=randwrite --bs=4k --size=32M --io_size=8M \
            --iodepth=32 --verify=crc32c --verify_fatal=1 --end_fsync=1 --eta=never --output="fio-$policy.log"
        "$ROADTRAIN" status --json >status.json
        holds status.json '.[0].paths | length == 2'
        holds status.json "[.[0].paths[].address] == [\"127.0.0.1:$port\", \"127.0.0.1:$other_port\"]"
        holds status.json 'all(.[0].paths[]; .state == "live" and .ana == "optimized" and .iops > 0)'
        "$ROADTRAIN" status --json -a "127.0.0.1:$other_port" -a 127.0.0.1:1 >of.json
        holds of.json 'length == 1'
        "$ROADTRAIN" slow -a "127.0.0.1:$other_port" --json >of.json
        holds of.json '.recorders | length == 1'
        ! "$ROADTRAIN" status -a 127.0.0.1:1 2>none.log || fail 'nothing is there'
        grep -q 'nothing here leads to or listens at 127.0.0.1:1' none.log
        ! "$ROADTRAIN" slow -a 127.0.0.1:1 2>none.log || fail 'nothing is there'
        grep -q 'nothing here leads to or listens at 127.0.0.1:1' none.log
        "$ROADTRAIN" detach --all >>detach.log
    done
    "$ROADTRAIN" bench -t tcp -a "127.0.0.1:$port" -a "127.0.0.1:$other_port" -n "$nqn" --rw randrw --bs 4k --depth 32 \
        --ios 8000 --size 8MiB --verify --json >bench.json
    holds bench.json '.errors == 0'
    "$ROADTRAIN" list -a "127.0.0.1:$port" -a "127.0.0.1:$other_port" -n "$nqn" --json >list.json
    holds list.json "[.[].trsvcid] == [\"$port\", \"$other_port\"]"
}

test_paths_that_are_not_there_or_lead_elsewhere() {
    local rc=0
    serve --namespace mem:64MiB
    other_port=$(free_port)
    attach_paths
    "$ROADTRAIN" status --json >status.json 2>status.log || rc=$?
    holds status.json '[.[0].paths[].state] == ["live", "connecting"] and .[0].state == "connected"'
    holds status.json ".[0].problems | length == 1 and (.[0] | startswith(\"path 127.0.0.1:$other_port is connecting\"))"
    [ $rc = 1 ] && grep -q "nbd0: path 127.0.0.1:$other_port is connecting" status.log || fail "status $rc: $(cat status.log)"
    rc=0
    background other.log env ROADTRAIN_RUNTIME_DIR="$work/other" "$ROADTRAIN" serve -a 127.0.0.1 -s "$other_port" \
        -n "$nqn" --namespace mem:64MiB
    until_line other.log '^ready' "$pid"
    "$ROADTRAIN" bench -a "127.0.0.1:$port" -a "127.0.0.1:$other_port" -n "$nqn" --seconds 1 2>refused.log || rc=$?
    [ $rc = 3 ] || fail "status $rc instead of 3"
    grep -q "namespace 1 at 127.0.0.1:$other_port is another one than at 127.0.0.1:$port" refused.log
}

# Where latency-critical requests meet bulk each path has a connection more, and loses it with the others.
test_paths_have_express_connections() {
    serve_twice
    background bench.log "$ROADTRAIN" bench -v -t tcp -a "127.0.0.1:$port" -a "127.0.0.1:$other_port" -n "$nqn" \
        --rw randread --bs 4k --depth 1 --class latency --stream rw=randwrite,bs=128k,depth=32,class=bulk \
        --path-policy round-robin --seconds 600 --json
    local load=$pid
    eventually 30 prints '[.[].subsystems[].controllers[].io_queues] == [2, 2]' \
        env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --json
    ss -K dst 127.0.0.1 dport = "$other_port" >killed.log 2>&1 || true  # where that is allowed
    ROADTRAIN_RUNTIME_DIR=$work/served moves_data
    ROADTRAIN_RUNTIME_DIR=$work/served moves_data
    kill -INT "$load"
    wait "$load" || { cat bench.log; fail 'bench saw errors'; }
    sed -n '/^{/,$p' bench.log >bench.json
    holds bench.json '.errors == 0 and .requests > 0'
}

# fall_under_load NAME COMMAND...: runs the command in the middle of a verified load over two links to one process;
# the longest pause, in us, is in $pause
fall_under_load() {
    local name=$1 load
    shift
    background "$name.json" in_lab h "$ROADTRAIN" bench -t tcp -a 10.77.0.2 -a 10.77.1.2 -n "$nqn" -k 2 --rw randrw \
        --bs 4k --depth 32 --seconds 8 --path-policy round-robin --verify --json
    load=$pid
    sleep 3
    "$@" >"$name.said" 2>&1 || true
    wait "$load" || { cat "$name.json"; fail 'bench saw errors'; }
    sed '/^{/,$d' "$name.json" >"$name.log"
    sed -n '/^{/,$p' "$name.json" >"$name.report"
    holds "$name.report" '.errors == 0 and .requests > 0'
    pause=$(jq '.latency.max_us | floor' "$name.report")
    echo "$name: the longest pause was $pause us, the keep-alive timeout is 2 s"
}

# falls_within US NAME CUT.. -- MEND..: so long is the longest pause under load at most when the command CUT runs in the
# middle of it, as fall_under_load does. Others use this machine, too: the best of three counts. MEND makes good again.
falls_within() {
    local limit=$1 name=$2 cut=() try
    shift 2
    while [ "$1" != -- ]; do cut+=("$1") && shift; done
    shift
    for try in 1 2 3; do
        fall_under_load "$name" "${cut[@]}"
        "$@"
        [ "$pause" -gt "$limit" ] || return 0
    done
    fail "$pause us"
}

# in_lab h|t COMMAND...: in that end of the lab
in_lab() { ip netns exec "rt-$lab-$1" "${@:2}"; }

thorough+=(paths_that_fall_silent_pause_for_a_keep_alive_timeout)  # measures pauses
test_paths_that_fall_silent_pause_for_a_keep_alive_timeout() {
    local why pause
    why=$(links_possible) || skip "$why"
    lab="p$BASHPID"
    trap 'links_remove "$lab"' EXIT
    links_make "$lab" 2 1500
    nqn=nqn.2026-11.test:e2e
    background target.log ip netns exec "rt-$lab-t" env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve \
        -a 10.77.0.2,10.77.1.2 -n "$nqn" --namespace mem:64MiB
    until_line target.log '^ready' "$pid"
    falls_within 3500000 black-holed links_cut "$lab" 0 -- links_mend "$lab" 0
    grep -q 'queue closed peer=10.77.0.1:.* reason=CrossControllerReset' target.log
    # Its connections are reset, and no process listens there any more.
    # Milliseconds; so much where others compute.
    falls_within 1000000 reset in_lab h ss -K dst 10.77.1.2 -- true
    grep -q 'Connection reset by peer .* peer=10.77.1.1:' target.log ||
        skip "this machine resets no connections: $(cat reset.said)"
}
