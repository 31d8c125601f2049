# shellcheck shell=bash
# The commands themselves: output for people and for programs, exit status.

test_command_bench_on_an_emulated_ssd() { thrice bench_on_an_emulated_ssd; }
bench_on_an_emulated_ssd() {
    # 4 at once, half a millisecond each: 8,000 a second at most.
    "$ROADTRAIN" bench --namespace ssd:64MiB,service-us=500,parallel=4 --rw randrw --bs 4k --depth 16 \
        --seconds 1 --verify --json >bench.json
    holds bench.json '.errors == 0 and .blocks_checked > 0 and .iops > 0 and .iops < 8400'
    holds bench.json '.latency.p50_us > 450'
}

# Threads that drive a lane each, and threads that hand over.
test_command_bench_threads() {
    local mode
    for mode in inline queue; do
        "$ROADTRAIN" bench --namespace mem:16MiB --mode $mode --threads 8 --rw randrw --bs 4k --ios 8000 --verify --json >bench.json
        holds bench.json '.errors == 0 and .iops > 0 and .blocks_checked > 0 and (.lanes | length) == 8'
        holds bench.json '.settings | .threads == 8 and .mode == $mode and .depth == 1' --arg mode $mode
        holds bench.json '.settings.reactor_places | length == (if $mode == "inline" then 8 else 1 end)' --arg mode $mode
        holds bench.json '.sends_per_io > 0 and .requests_per_caravan >= 1'
    done
    "$ROADTRAIN" bench --namespace mem:16MiB --mode queue --threads 4 --lanes 2 --cores 0,1 --ios 1000 >bench.log
    grep -q '4, queue mode' bench.log
    local rc=0
    "$ROADTRAIN" bench --threads 4 --lanes 2 2>error.log || rc=$?
    [ "$rc" = 2 ] && grep -q 'lane of its own' error.log
}

bench_streams() {
    "$ROADTRAIN" bench --namespace mem:64MiB --rw randrw --bs 4k --depth 1 --lanes 2 --class latency --verify --seconds 1 --json \
        --stream rw=randwrite,bs=128k,depth=8,class=bulk,lane=own \
        --stream rw=rw,rwmixread=70,bs=8k,depth=4,rate=1000 >bench.json
    holds bench.json '.errors == 0 and .iops > 0 and .blocks_checked > 0 and (.lanes | length) == 3'
    holds bench.json '[.streams[] | .rw, .bs, .depth, .class, .lane_choice]
        == ["randwrite", 131072, 8, "bulk", "own", "rw", 8192, 4, "normal", "shared"]'
    holds bench.json '[.streams[] | .iops > 0 and .errors == 0 and .latency.p99_us >= .latency.p50_us] | all'
    holds bench.json '.requests_total == .requests + ([.streams[].requests] | add)'
    holds bench.json '.streams[1].iops < 1100'
}

test_command_bench_streams() {
    thrice bench_streams
    local rc=0
    "$ROADTRAIN" bench --depth 1000 --stream depth=1000 --seconds 1 2>error.log || rc=$?
    [ "$rc" = 2 ] && grep -q 'in flight on a lane' error.log
}

bench_settles() {
    "$ROADTRAIN" bench --step depth=1:64,period-ms=100 --seconds 1 --json >bench.json
    holds bench.json '.errors == 0 and (.step | .period_ms == 100 and .low_iops > 0 and .high_iops > .low_iops)'
    holds bench.json '.step | .settle_ms >= 1 and .settle_ms <= 50'
}

alone+=(command_bench_steps)
thorough+=(command_bench_steps)  # alone with the machine
test_command_bench_steps() {
    thrice bench_settles
    "$ROADTRAIN" bench --depth 1023 --seconds 1 --json >bench.json
    holds bench.json '.errors == 0 and .iops > 0 and .settings.depth == 1023 and .step == null'
}

test_command_help_and_man() {
    "$ROADTRAIN" --help >help.log
    grep -q serve help.log
    local command
    for command in serve discover identify list attach bench; do
        "$ROADTRAIN" "$command" --help >/dev/null
    done
    "$ROADTRAIN" man man
    [ -s man/roadtrain.1 ]
}

# refuses STATUS TEXT COMMAND...: it ends at once with that status and a line with that text
refuses() {
    local rc=0
    timeout 30 "${@:3}" >refuses.out 2>refuses.log || rc=$?
    [ $rc = "$1" ] && grep -qF "$2" refuses.log || fail "status $rc: $(cat refuses.log): ${*:3}"
}

# First steps that go wrong say so before anything is served.
test_command_first_steps_that_go_wrong() {
    local serve=("$ROADTRAIN" serve -a 127.0.0.1 -s 0 -n nqn.2026-11.test:first) rc=0
    refuses 2 'there is no such folder' "${serve[@]}" --namespace mem:8MiB --rpc "$work/rpc" --state "$work/none/x"
    refuses 2 'there is no such folder' "${serve[@]}" --namespace mem:8MiB --rpc "$work/rpc" --file-root "$work/none"
    refuses 2 'core 4095' "${serve[@]}" --namespace mem:8MiB --cores 4095 --check-config
    refuses 2 '198.51.100.213' "$ROADTRAIN" serve -a 198.51.100.213 -n nqn.2026-11.test:first --namespace mem:8MiB --check-config
    refuses 2 'none.key' "${serve[@]}" --namespace mem:8MiB --tls allowed --tls-key "$work/none.key"
    refuses 2 'serial' "${serve[@]}" --namespace mem:8MiB --serial ''
    refuses 2 '1073741824' "${serve[@]}" --namespace mem:1GB
    refuses 1 '1152921504606846464 at most' "${serve[@]}" --namespace null:1048576T
    refuses 2 'write a number from 0 to 65535' "$ROADTRAIN" serve -a 127.0.0.1 -s x -n nqn.x:y --namespace mem:8MiB
    refuses 2 'did you mean lba?' "${serve[@]}" --namespace mem:8MiB,lab=512
    refuses 2 'buffers 1 KiB: write 4 MiB to 64 TiB' "${serve[@]}" --namespace mem:8MiB --buffers 1k
    refuses 2 'there is no month 13' "$ROADTRAIN" serve -a 127.0.0.1 -s 0 -n nqn.2026-13.test:a --namespace mem:8MiB
    refuses 1 'no address of this machine' "$ROADTRAIN" serve -a 198.51.100.213 -n nqn.x:y --namespace mem:8MiB
    refuses 2 'roadtrain attach does that' "$ROADTRAIN" connect -a 127.0.0.1
    serve --namespace mem:8MiB
    refuses 3 "target0 runs without that socket" env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl \
        --rpc "$work/none.sock" subsystem list
    refuses 1 "process $target (roadtrain) listens there" "$ROADTRAIN" serve -a "127.0.0.1:$port" -n nqn.x:y --namespace mem:8MiB
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n nqn.x:y --namespace mem:8MiB 2>again.log || rc=$?
    [ "$rc" = 1 ] && grep -q 'that is the target .*: --takeover replaces it' again.log || fail "$rc: $(cat again.log)"
    "$ROADTRAIN" identify -a "127.0.0.1:$port" -n "$nqn" -w 127.0.0.3 -f lo >/dev/null
    refuses 3 'from 198.51.100.213' "$ROADTRAIN" identify -a "127.0.0.1:$port" -n "$nqn" -w 198.51.100.213
    "$ROADTRAIN" hostnqn | grep -q '^nqn\.' && "$ROADTRAIN" hostnqn --json >host.json
    holds host.json '.host_nqn | startswith("nqn.")'
    # Not a key: nothing is said about its mode.
    printf 'no key\n' >plain
    chmod 644 plain
    refuses 2 plain "$ROADTRAIN" keys show "$work/plain"
    ! grep -q chmod refuses.log || fail "$(cat refuses.log)"
}

# A target that any host can use says so, but not on the loopback.
test_command_open_target_is_told() {
    target_address=0.0.0.0 serve --namespace mem:8MiB
    eventually 30 grep -q 'any host that reaches this target' target.log
    kill "$target"
    ended "$target" 30
    serve --namespace mem:8MiB
    ! grep -q 'any host that reaches' target.log || fail 'the loopback is nobody else'
}

# detached_by_each_name ATTACH-OPTIONS...: each name that `ready` prints is one for `status` and `detach`
detached_by_each_name() {
    local number=0 count=1 name
    for ((number = 0; number < count; number++)); do
        "$ROADTRAIN" attach -a 127.0.0.1 -s "$port" -n "$nqn" "$@" --background --json >ready.json
        count=$(jq '[.devices[].names[]] | length' ready.json)
        name=$(jq -r "[.devices[].names[]][$number]" ready.json)
        "$ROADTRAIN" status "$name" >status.out || fail "status does not know $name"
        "$ROADTRAIN" detach "$name" >detach.out || fail "detach does not know $name"
        [ "$("$ROADTRAIN" list --json)" = '[]' ] || fail "detach $name has left something"
    done
}

# What `ready` prints is good for `detach` and `status`. The device of ublk is a path as that of --loop is.
test_command_ready_names_the_attachment() {
    local as places=(nbd:unix:relative.sock nbd:tcp:127.0.0.1:0 "vhost-user:$work/v.sock" vhost-user:v.sock)
    places+=("nbd:unix:$work/a b.sock")
    ! grep -q '^0*1 .* lo$' /proc/net/if_inet6 || places+=("nbd:tcp:[::1]:0")
    serve --namespace mem:8MiB --namespace mem:8MiB
    for as in "${places[@]}"; do
        detached_by_each_name --as "$as" --nsid 1
    done
    # The line has the same names as the JSON.
    "$ROADTRAIN" attach -a 127.0.0.1 -s "$port" -n "$nqn" --as nbd:tcp:127.0.0.1:0 --background >ready.out
    "$ROADTRAIN" detach "$(cut -d' ' -f2 ready.out)"
    mkdir disks
    detached_by_each_name --as vhost-user:disks/
    if [ "$(id -u)" = 0 ] && [ -c /dev/fuse ]; then
        detached_by_each_name --as "fuse:$work/mnt"
        detached_by_each_name --as fuse:mnt
        [ ! -c /dev/loop-control ] || detached_by_each_name --as "fuse:$work/mnt" --loop
    fi
}
