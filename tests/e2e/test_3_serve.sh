# shellcheck shell=bash
# The target's own life: configuration, signals, what it refuses.

test_serve_names_what_is_wrong() {
    local rc=0
    "$ROADTRAIN" serve -a 127.0.0.1 -s 1 -n not-an-nqn --namespace mem:1MiB 2>error.log || rc=$?
    [ $rc != 0 ]
    grep -qi nqn error.log
    rc=0
    "$ROADTRAIN" serve -a 127.0.0.1 -s 4420 -n nqn.2026-11.test:e2e --namespace file:/nonexistent/x,size=1MiB \
        2>error.log || rc=$?
    [ $rc != 0 ]
    grep -q /nonexistent/x error.log
}

test_serve_reports_a_used_port() {
    serve --namespace mem:1MiB
    ! timeout 60 "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n "$nqn" --namespace mem:1MiB 2>error.log ||
        fail 'two targets on one port'
    grep -q "$port" error.log
}

# What no NVMe/TCP host says: the connection ends, the target goes on and names the peer.
test_serve_survives_garbage() {
    serve --namespace mem:64MiB
    local n
    for n in 1 2 3 4 5; do
        { head -c 200 /dev/urandom >&3 && timeout 1 cat <&3 >/dev/null; } 3<>"/dev/tcp/127.0.0.1/$port" || true
    done
    printf 'GET / HTTP/1.1\r\n\r\n' >"/dev/tcp/127.0.0.1/$port" || true
    alive "$target"
    grep -q '127.0.0.1' target.log
    attach
    nbdinfo "$uri" >/dev/null
}

# A client that connects and resets all the time does not fill the log, and hides nothing else.
test_serve_log_has_a_budget() {
    serve --namespace mem:64MiB --allow-host nqn.2026-11.test:friend
    python3 - "$port" <<'END'
import socket, struct, sys
for n in range(3000):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
END
    eventually 20 grep -q 'lines like the next one are left out' target.log
    # One period may have ended meanwhile.
    [ "$(wc -l <target.log)" -lt 900 ] || fail "$(wc -l <target.log) lines: $(tail -n 3 target.log)"
    ! "$ROADTRAIN" identify -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" 2>error.log || fail 'a stranger was let in'
    eventually 20 grep -q 'Connect refused' target.log
}

# ticks PID: of CPU that the process has used
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }

thorough+=(serve_idles_cheaply)  # measures for seconds
test_serve_idles_cheaply() {
    serve --namespace mem:64MiB
    attach
    sleep 1
    thrice idle_cheaply
}

# idle_cheaply: both ends need next to nothing
idle_cheaply() {
    local p before=()
    for p in "$target" "$attached"; do before[p]=$(ticks "$p"); done
    sleep 4
    for p in "$target" "$attached"; do
        # Clock ticks are 10 ms: 0.5 % of 4 s is two of them.
        [ $(($(ticks "$p") - before[p])) -le 2 ] || fail "process $p: more than 2 ticks of CPU in 4 idle seconds"
    done
}

# SIGHUP reads the configuration again: namespaces come and grow; a wrong file changes nothing.
test_serve_reloads_on_sighup() {
    configure "file:$work/a.img,size=64MiB"
    serve_configured
    local address=(-t tcp -a 127.0.0.1 -s "$port" -n "$nqn")
    attach
    has_namespaces 67108864
    configure "file:$work/a.img,size=128MiB" "file:$work/b.img,size=32MiB,lba=4096"
    kill -HUP "$target"
    has_namespaces 134217728,33554432
    echo 'nonsense' >target.toml
    kill -HUP "$target"
    until_line target.log 'target.toml' "$target"
    has_namespaces 134217728,33554432
    configure "file:$work/a.img,size=128MiB"
    kill -HUP "$target"
    has_namespaces 134217728
    # The attached block device went on all the time.
    qemu-io -f raw -c 'write -P 5 0 1M' -c 'read -P 5 0 1M' "$uri"
}

# has_namespaces BYTES,...: the sizes of all namespaces, soon
has_namespaces() {
    local n sizes
    for n in $(seq 50); do
        sizes=$("$ROADTRAIN" identify "${address[@]}" --json | jq -r '[.namespaces[].capacity_bytes] | map(tostring) | join(",")')
        [ "$sizes" != "$1" ] || return 0
        sleep 0.1
    done
    fail "namespaces of $sizes bytes instead of $1"
}

# 128 I/O queues of 1,024 entries on one controller.
test_serve_many_queues() {
    serve --namespace mem:16MiB
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw randrw --bs 4k --depth 8 --lanes 128 \
        --queue-size 1024 --ios 20000 --verify --json >bench.json
    holds bench.json '.errors == 0 and (.lanes | length) == 128'
}

# A latency-critical lane has its turns in the middle of the bulk lanes' turns, at both ends: every block is right.
test_serve_lets_an_express_lane_pass() {
    serve --namespace mem:32MiB
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw randrw --bs 4k --depth 4 --class latency \
        --stream rw=randrw,bs=4k,depth=200,class=bulk,lane=own --stream rw=randrw,bs=128k,depth=16,lane=own \
        --seconds 1 --verify --json >bench.json
    holds bench.json '.errors == 0 and (.lanes | length) == 3'
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw randrw --bs 4k --depth 1 --class latency \
        --stream rw=randrw,bs=4k,depth=128,class=bulk --stream rw=randrw,bs=128k,depth=8,lane=own \
        --seconds 1 --verify --json >bench.json
    holds bench.json '.errors == 0 and (.lanes | length) == 2'
}

# io_queues: I/O queues of the controllers, from the target's status
io_queues() {
    ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status target0 --json |
        jq -c '[.. | .io_queues? // empty]'
}

# Where latency-critical requests meet bulk in a lane the host connects one more queue, if it is allowed to and the
# target grants one: every block is right.
test_serve_express_connections() {
    serve --namespace mem:16MiB
    local mixed=(bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw randrw --bs 4k --depth 2 --class latency
        --stream 'rw=randrw,bs=4k,depth=200,class=bulk' --seconds 600 --verify --json)
    express_queues '[2]'
    express_queues '[1]' --no-express
    kill -TERM "$target" && ended "$target" 60
    serve --namespace mem:16MiB --max-queues 1
    express_queues '[1]'
}

# express_queues QUEUES [OPTIONS]: the host has so many, soon; and no more after some time, which others had
express_queues() {
    background bench.json "$ROADTRAIN" "${mixed[@]}" "${@:2}"
    local host=$pid
    eventually 60 has_queues "$1"
    ROADTRAIN_RUNTIME_DIR=$work/served moves_data
    sleep 0.5
    has_queues "$1" || fail "queues $(io_queues) instead of $1"
    kill -INT "$host"
    wait "$host" || fail 'bench has failed'
    holds bench.json '.errors == 0 and .blocks_checked > 0'
}
has_queues() { [ "$(io_queues)" = "$1" ]; }

# Far more data in flight than buffers: it goes slower, and nothing fails.
test_serve_runs_out_of_buffers() {
    serve --namespace "file:$work/disk.img,size=64MiB" --buffers 4MiB
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw randrw --bs 128k --depth 64 --lanes 4 \
        --ios 2000 --verify --json >bench.json
    holds bench.json '.errors == 0'
    kill -TERM "$target"
    ended "$target" 60
}
