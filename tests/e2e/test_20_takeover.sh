# shellcheck shell=bash
# A new process goes on in the place of a running target, under load, and what happens when it cannot.

# serve_disk [OPTIONS]: a target with a file, whose process is $target
serve_disk() {
    serve --namespace "file:$work/disk.img,size=256MiB" "$@"
}

# take_over LOG [OPTIONS]: starts another process that takes over; leaves it in $new
take_over() {
    background "$1" env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n "$nqn" \
        --takeover "${@:2}"
    new=$pid
}

# taken_over: that process serves, and the old one has ended well; the new one is $target
taken_over() {
    until_line "$1" '^ready' "$new"
    ended "$target" 60
    wait "$target" || { cat "$work"/target*.log; fail "the old process ended with $?"; }
    target=$new
}

# taken_over_soon LOG [OPTIONS]: takes over, again while the old process has to do with another one that has given up
taken_over_soon() {
    local n
    for ((n = 0; n < 50; n++)); do
        take_over "$@"
        eventually 60 has_decided "$1"
        grep -q 'another process is taking over already' "$1" || break
        sleep 0.2
    done
    taken_over "$1"
}
has_decided() { grep -q '^ready' "$1" || ! alive "$new"; }

# longest_pause FILE: the longest latency that `bench --json` has seen, in milliseconds
longest_pause() { jq '.latency.max_us / 1000 | floor' "$1"; }

# bench_at LOG [OPTIONS]: verified load over the network; leaves its process in $load
bench_at() {
    background "$1" "$ROADTRAIN" bench --rw randrw --bs 4k --size 16MiB --verify --json -t tcp -a 127.0.0.1 -s "$port" \
        -n "$nqn" --seconds 600 "${@:2}"
    load=$pid
    carries_on
}

# carries_on: the target moves data, soon
carries_on() { ROADTRAIN_RUNTIME_DIR="$work/served" moves_data; }

# bench_ended LOG: it continues, and ends at SIGINT; its report is left in bench.json
bench_ended() {
    carries_on
    kill -INT "$load"
    ended "$load" 40
    wait "$load" || { cat "$1"; fail 'the load failed'; }
    sed -n '/^{/,$p' "$1" >bench.json
    holds bench.json '.errors == 0'
}

# Under load that is checked byte for byte, over the network and through NBD.
test_takeover_under_load() { takeovers_under_load 3; }

thorough+=(takeover_ten_times_under_load)
test_takeover_ten_times_under_load() { takeovers_under_load 10; }

takeovers_under_load() {
    local load fio_load n
    serve_disk
    attach
    bench_at bench.log --depth 32 --lanes 2
    background fio.log fio --name=verify --ioengine=nbd --uri="$uri" --rw=randwrite --bs=4k --offset=64M --size=64M \
        --io_size=1G --time_based --runtime=600 --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_backlog=64 \
        --eta=never --output=fio.txt
    fio_load=$pid
    moves_data
    for n in $(seq "$1"); do
        take_over "new$n.log" --namespace "file:$work/disk.img"
        taken_over "new$n.log"
        carries_on
        moves_data
    done
    bench_ended bench.log
    alive "$fio_load" || { cat fio.log fio.txt; fail 'fio has ended'; }
    kill -INT "$fio_load"
    ended "$fio_load" 60
    wait "$fio_load" || [ $? = 128 ] || { cat fio.log fio.txt; fail 'fio failed'; }
    grep -q 'err= 0' fio.txt || { cat fio.txt; fail 'fio saw errors'; }
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --json >status.json
    holds status.json 'length == 1 and .[0].id == "target0"'
    "$ROADTRAIN" detach --all >>detach.log
    echo "measured: the longest pause of $1 takeovers: $(longest_pause bench.json) ms"
}

# Nothing has changed at a target that refuses, or whose new process finds out in time that it cannot serve.
test_takeover_that_cannot_be_is_seen_before() {
    no_takeover() {  # STATUS TEXT OPTIONS...
        local rc=0
        env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n "$nqn" --takeover \
            "${@:3}" >refused.out 2>refused.log || rc=$?
        [ "$rc" = "$1" ] || fail "status $rc: $(cat refused.log)"
        grep -qF -- "$2" refused.log || fail "$(cat refused.log)"
        alive "$target" || fail 'the old process has ended'
    }
    port=$(free_port) nqn=nqn.2026-11.test:e2e target=$$
    no_takeover 3 'no target with one of these listeners' --namespace mem:1MiB
    serve_disk
    no_takeover 3 'no target called other' --namespace "file:$work/disk.img" --id other
    no_takeover 1 "$work/missing.img" --namespace "file:$work/missing.img"
    no_takeover 2 'nsid' --namespace "file:$work/disk.img,nsid=20000"
    echo admin:secret >credentials && chmod 644 credentials
    no_takeover 2 "$PWD/credentials" --namespace "file:$work/disk.img" --rpc-http 127.0.0.1:0 \
        --rpc-credentials "$PWD/credentials"
    ! grep -q 'takes over' "$work/target.log" || fail 'it has noticed'
    serve_memory() { port= && serve --namespace mem:16MiB,nsid=3; }
    serve_memory
    no_takeover 2 'namespace 3 of nqn.2026-11.test:e2e is in this process'"'"'s memory' --namespace mem:16MiB
    grep -q 'would be lost' refused.log
}

# has_settled: whether the old process has ended, or serves again after each that it let take over
has_settled() {
    ! alive "$target" || [ "$(grep -c 'another process takes over' "$work/target.log")" = \
        "$(grep -c 'this process serves again' "$work/target.log")" ]
}

# The new process finds too late that it cannot serve: the old one serves again.
test_takeover_that_fails_is_taken_back() {
    local load
    serve_disk
    bench_at bench.log --depth 16
    truncate -s 1000 odd.img
    local rc=0
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n "$nqn" --takeover \
        --namespace "file:$work/disk.img" --namespace "file:$work/odd.img" 2>failed.log || rc=$?
    [ $rc = 1 ] || fail "status $rc: $(cat failed.log)"
    grep -q 'odd.img: 1000 bytes' failed.log || fail "$(cat failed.log)"
    until_line "$work/target.log" 'this process serves again' "$target"
    carries_on
    taken_over_soon last.log --namespace "file:$work/disk.img"
    bench_ended bench.log
}

# The same when it is killed at any moment.
thorough+=(takeover_by_a_process_that_is_killed)
test_takeover_by_a_process_that_is_killed() {
    local load n
    serve_disk
    bench_at bench.log --depth 16
    for n in 1 2 3 4 5 6 7 8; do
        take_over "killed$n.log" --namespace "file:$work/disk.img"
        sleep "0.0$((n * 2))"
        kill -KILL "$new" 2>/dev/null || true
        wait "$new" || true
        eventually 60 has_settled
        # Killed after the old one has gone, it is a target that was killed.
        alive "$target" || serve_disk
    done
    taken_over_soon last.log --namespace "file:$work/disk.img"
    bench_ended bench.log
}

# After the old process has ended no other one serves, so the new one does without the resources that it cannot get.
test_takeover_goes_on_without_what_cannot_be_had() {
    serve_disk --rpc "$work/rpc.sock" --state "$work/state.toml"
    (umask 077 && echo admin:secret >credentials)
    # No interface has that address.
    take_over new.log --namespace "file:$work/disk.img" --metrics 203.0.113.1:9100 --rpc "$work/rpc.sock" \
        --state "$work/state.toml" --rpc-http 203.0.113.1:9101 --rpc-http-anywhere --rpc-credentials "$PWD/credentials"
    taken_over new.log
    [ "$(grep -c 'serving without' new.log)" = 2 ] || fail "$(cat new.log)"
    "$ROADTRAIN" ctl --rpc "$work/rpc.sock" rpc nvmf_get_subsystems >subsystems.json
    holds subsystems.json 'length >= 1'
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" >identify.log
}

# The old process hangs: the new one gives up and says so, and the old one serves on when it is back.
test_takeover_from_a_process_that_hangs() {
    local rc=0
    serve_disk
    stopped "$target"
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n "$nqn" --takeover \
        --namespace "file:$work/disk.img" 2>refused.log || rc=$?
    [ $rc = 3 ] || fail "status $rc: $(cat refused.log)"
    grep -qF "target0 (process $target) does not answer" refused.log || fail "$(cat refused.log)"
    kill -CONT "$target"
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" >identify.log
    taken_over_soon new.log --namespace "file:$work/disk.img"
}

# has_notified COUNT: the service manager was notified so many times of the serving process
has_notified() { [ "$(grep -cE '^(READY|MAINPID)' notify.log)" -ge "$1" ]; }

# The service manager is notified of the new process.
test_takeover_tells_the_service_manager() {
    python3 - "$work/notify" >notify.log <<'END' &
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(s.recv(4096).decode(), flush=True)
END
    echo "$!" >>"$work/.pids"
    until [ -S "$work/notify" ]; do sleep 0.05; done
    export NOTIFY_SOCKET=$work/notify
    serve_disk --id disk
    take_over new.log --namespace "file:$work/disk.img" --id disk
    taken_over new.log
    unset NOTIFY_SOCKET
    eventually 20 has_notified 3
    [ "$(grep -E '^(READY|MAINPID)' notify.log | tr '\n' ' ')" = "READY=1 MAINPID=$new READY=1 " ] || fail "$(cat notify.log)"
}

# The running target starts the program anew; the caller receives the result.
test_takeover_by_upgrade() {
    local rc=0 old
    cp "$ROADTRAIN" program
    ROADTRAIN=$work/program serve --namespace "file:$work/disk.img,size=64MiB"
    old=$target
    bench_at bench.log --depth 8
    rm program
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl upgrade >failed.log 2>&1 || rc=$?
    [ $rc = 1 ] || fail "status $rc: $(cat failed.log)"
    grep -q 'No such file' failed.log || fail "$(cat failed.log)"
    cp "$ROADTRAIN" program
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl upgrade >upgrade.log
    target=$(sed -n 's/^process \([0-9]*\) serves$/\1/p' upgrade.log)
    [ -n "$target" ] && [ "$target" != "$old" ] && alive "$target" || fail "$(cat upgrade.log)"
    echo "$target" >>"$work/.pids"
    ended "$old" 60
    bench_ended bench.log
    # As long as it is not overwritten, a program that cannot serve changes nothing.
    rm program
    printf '#!/bin/sh\nexit 7\n' >program
    chmod +x program
    rc=0
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl upgrade >failed.log 2>&1 || rc=$?
    [ $rc = 1 ] || fail "status $rc: $(cat failed.log)"
    grep -q 'exit status: 7' failed.log || fail "$(cat failed.log)"
    alive "$target" || fail 'it has ended'
}

# A target that JSON-RPC requests have made, with volumes: taken over under load, and taken back.
test_takeover_of_what_rpc_has_made() {
    local load n rc=0 disk=nqn.2026-11.test:volume
    local managed=(--rpc "$work/rpc.sock" --state "$work/state.toml" --lvstore "vols=$work/vols,size=256MiB" --id managed)
    ask() { "$ROADTRAIN" ctl --rpc "$work/rpc.sock" rpc "$@" >ask.json 2>ask.log || fail "rpc $1: $(cat ask.log)"; }
    serve_managed() {  # LOG OPTIONS...
        background "$1" env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve "${managed[@]}" "${@:2}"
        new=$pid
    }
    port=$(free_port)
    serve_managed target.log && target=$new
    until_line target.log '^ready' "$target"
    ask bdev_lvol_create '{"lvs_name": "vols", "lvol_name": "disk", "size_in_mib": 128}'
    ask nvmf_create_subsystem "{\"nqn\": \"$disk\", \"allow_any_host\": true}"
    ask nvmf_subsystem_add_ns "{\"nqn\": \"$disk\", \"namespace\": {\"bdev_name\": \"vols/disk\", \"nsid\": 1}}"
    ask nvmf_subsystem_add_listener "{\"nqn\": \"$disk\", \"listen_address\":
        {\"trtype\": \"tcp\", \"adrfam\": \"ipv4\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$port\"}}"
    nqn=$disk bench_at bench.log --depth 16
    # One that finds out too late that it cannot serve: the old one has everything again.
    truncate -s 1000 odd.img
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve "${managed[@]}" --takeover -n nqn.2026-11.test:odd -a 127.0.0.1 \
        -s "$(free_port)" --namespace "file:$work/odd.img" 2>failed.log || rc=$?
    [ $rc = 1 ] && grep -q 'odd.img: 1000 bytes' failed.log || fail "status $rc: $(cat failed.log)"
    until_line target.log 'this process serves again' "$target"
    ask bdev_lvol_create '{"lvs_name": "vols", "lvol_name": "later", "size_in_mib": 4}'
    for n in 1 2 3; do
        serve_managed "new$n.log" --takeover
        taken_over "new$n.log"
        ask bdev_lvol_get_lvols
        holds ask.json '[.[].alias] == ["vols/disk", "vols/later"]'
        ask nvmf_get_subsystems
        holds ask.json '.[1] | .nqn == $q and (.namespaces | length) == 1 and (.listen_addresses | length) == 1' --arg q "$disk"
        carries_on
    done
    ask bdev_lvol_delete '{"name": "vols/later"}'
    bench_ended bench.log
    echo "measured: the longest pause of 3 takeovers and one that failed: $(longest_pause bench.json) ms"
    # What would be lost.
    ask bdev_malloc_create '{"name": "Malloc0", "num_blocks": 2048, "block_size": 512}'
    rc=0
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve "${managed[@]}" --takeover 2>refused.log || rc=$?
    [ $rc = 2 ] && grep -q 'device Malloc0 is in this process' refused.log || fail "status $rc: $(cat refused.log)"
    ask bdev_malloc_delete '{"name": "Malloc0"}'
}
