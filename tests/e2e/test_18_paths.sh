# shellcheck shell=bash
# Several paths to one subsystem, as options and status have them.

# serve_twice: a target with two listeners, at $port and $other_port
serve_twice() {
    serve --namespace mem:64MiB
    other_port=$(free_port)
    ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" target listen -a 127.0.0.1 -s "$other_port" >listen.log
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
        "$ROADTRAIN" status --json -a 127.0.0.1:1 >none.json
        holds none.json 'length == 0'
        "$ROADTRAIN" detach --all >>detach.log
    done
    "$ROADTRAIN" bench -t tcp -a "127.0.0.1:$port" -a "127.0.0.1:$other_port" -n "$nqn" --rw randrw --bs 4k --depth 32 \
        --seconds 1 --verify --json >bench.json
    holds bench.json '.errors == 0'
    "$ROADTRAIN" list -a "127.0.0.1:$port" -a "127.0.0.1:$other_port" -n "$nqn" --json >list.json
    holds list.json "[.[].trsvcid] == [\"$port\", \"$other_port\"]"
}

test_paths_that_are_not_there_or_lead_elsewhere() {
    local rc=0
    serve --namespace mem:64MiB
    other_port=$(free_port)
    attach_paths
    "$ROADTRAIN" status --json >status.json
    holds status.json '[.[0].paths[].state] == ["live", "connecting"] and .[0].state == "connected"'
    background other.log env ROADTRAIN_RUNTIME_DIR="$work/other" "$ROADTRAIN" serve -a 127.0.0.1 -s "$other_port" \
        -n "$nqn" --namespace mem:64MiB
    until_line other.log '^ready' "$pid"
    "$ROADTRAIN" bench -a "127.0.0.1:$port" -a "127.0.0.1:$other_port" -n "$nqn" --seconds 1 2>refused.log || rc=$?
    [ $rc = 3 ] || fail "status $rc instead of 3"
    grep -q "namespace 1 at 127.0.0.1:$other_port is another one than at 127.0.0.1:$port" refused.log
}
