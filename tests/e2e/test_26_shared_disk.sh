# shellcheck shell=bash
# A target that stood still, and two targets over one disk: nothing old is executed behind what is newer. ROUNDS says how
# many faults there are; with ROUNDS=100 it takes about ten minutes. The kinds are drawn with SEED.

ROUNDS=${ROUNDS:-5}

# unread BYTES: so many lie unread in the sockets of the target on $port
unread() { ss -Htn state established sport = ":$port" | awk -v least="$1" '{ sum += $1 } END { exit !(sum >= least) }'; }

# queues_closed COUNT: the target has closed so many as their keep-alive timer had expired
queues_closed() { [ "$(grep -c 'queue closed.*reason=KeepAliveExpired' target.log)" -ge "$1" ]; }

# The target stands still with a write in its socket, for longer than two keep-alive timeouts; so does its host, which
# could write it again. Alone again, the target does not execute it, though the write before had restarted the timer.
test_shared_disk_paused_target_executes_nothing_old() {
    truncate -s 16M disk.img
    serve --namespace "file:$PWD/disk.img"
    attach --keep-alive-tmo 1
    qemu-io -f raw -c 'write -P 0x11 0 4k' "$uri" >first.log
    stopped "$target"
    background second.log qemu-io -f raw -c 'write -P 0x22 4k 4k' "$uri"
    local write=$pid since
    eventually 30 unread 4096
    stopped "$attached"
    since=$EPOCHREALTIME
    eventually 30 waited "$since" 3
    kill -CONT "$target"
    eventually 30 queues_closed 2
    cmp --bytes=4096 --ignore-initial=4096:0 disk.img /dev/zero || fail 'the target has executed an old write'
    kill -CONT "$attached"
    ended "$write" 30
    wait "$write" || { cat second.log; fail 'the write has failed'; }
    qemu-io -f raw -c 'read -P 0x22 4k 4k' "$uri" >read.log || { cat read.log; fail 'it was not written again'; }
}

# received_all: nothing lies unread in the sockets of the target on $port
received_all() { ! unread 1; }

leave_fuse_server() {
    kill -CONT "$server" 2>/dev/null || true
    umount -lf "$work/store.mnt" 2>/dev/null || true
}

# A file of a FUSE mount, whose server stands still with a request: the target has one reactor, and its other namespace
# answers.
test_shared_disk_fuse_server_that_stands_still_holds_only_its_own() {
    need_mount
    local store_port namespace write stuck
    store_port=$(free_port)
    background target0.log env ROADTRAIN_RUNTIME_DIR="$work/store" "$ROADTRAIN" serve -a 127.0.0.1 -s "$store_port" \
        -n nqn.2026-11.test:store --namespace mem:16MiB
    until_line target0.log '^ready' "$pid"
    background store.log env ROADTRAIN_RUNTIME_DIR="$work/store" "$ROADTRAIN" attach -a 127.0.0.1 -s "$store_port" \
        -n nqn.2026-11.test:store --as "fuse:$work/store.mnt"
    server=$pid
    trap leave_fuse_server EXIT
    until_line store.log '^ready' "$server"
    namespace=file:$work/store.mnt/nvme0n1,nguid=$(printf '%032x' 7),reservations=none,uncorrectable=none
    serve --cores 0 --namespace "$namespace" --namespace mem:16MiB
    attach
    stuck=$uri
    socket=$work/other.sock attach --nsid 2
    stopped "$server"
    background write.log qemu-io -f raw -c 'write -P 0x22 0 4k' "$stuck"
    write=$pid
    eventually 20 prints 'any(.in_flight == 1)' "$ROADTRAIN" status --json
    eventually 20 received_all
    timeout 20 qemu-io -f raw -c 'write -P 0x33 0 4k' -c 'read -P 0x33 0 4k' "$uri" >other.log ||
        { cat other.log; fail 'the other namespace does not answer'; }
    alive "$write" || { cat write.log; fail 'the write did not wait'; }
    kill -CONT "$server"
    ended "$write" 20
    wait "$write" || { cat write.log; fail 'the write has failed'; }
    "$ROADTRAIN" detach --all >detach.log
}

# A disk that stalls: target N of two, at link N of a lab, reaches it over an attachment of its own. Where that one is
# stopped the target's operations stay, and are executed when it goes on.
shared_disk() {
    store_port=$(free_port) stores=() targets=()
    truncate -s 16M disk.img
    background store.log env ROADTRAIN_RUNTIME_DIR="$work/store" "$ROADTRAIN" serve -a 127.0.0.1 -s "$store_port" \
        -n nqn.2026-11.test:store --namespace "file:$PWD/disk.img"
    until_line store.log '^ready' "$pid"
    local number
    for number in 0 1; do
        background "store$number.log" env ROADTRAIN_RUNTIME_DIR="$work/store$number" "$ROADTRAIN" attach -a 127.0.0.1 \
            -s "$store_port" -n nqn.2026-11.test:store --as "fuse:$work/store$number.mnt" --keep-alive-tmo 1 \
            --reconnect-delay 1
        stores+=("$pid")
        until_line "store$number.log" '^ready' "$pid"
        serve_shared "$number"
    done
}

# serve_shared NUMBER: a target over its attachment; both show one namespace
serve_shared() {
    local namespace
    namespace=file:$work/store$1.mnt/nvme0n1,nguid=$(printf '%032x' 7),reservations=none,uncorrectable=none
    background "target$1.log" env ROADTRAIN_RUNTIME_DIR="$work/target$1" "${away[@]}" "$ROADTRAIN" serve \
        -a "10.77.$1.2" -s 4420 -n "$nqn" --namespace "$namespace"
    targets[$1]=$pid
    until_line "target$1.log" '^ready' "$pid"
}

# dark NUMBER up|down: the link to that target
dark() { ip -n "rt-$lab-m" link set "h$1" "$2"; }

# shared_fault KIND NUMBER SECONDS: at that target
shared_fault() {
    case $1 in
    stall) # with operations in the disk whose host has lost them
        stopped "${stores[$2]}"
        sleep 0.2
        dark "$2" down
        sleep 1
        dark "$2" up # nothing covers a disk that stalls for longer than the quiet time while its target is away
        sleep "$3"
        kill -CONT "${stores[$2]}"
        ;;
    pause)
        stopped "${targets[$2]}"
        [ $((RANDOM % 2)) = 0 ] || dark "$2" down
        sleep "$3"
        kill -CONT "${targets[$2]}"
        dark "$2" up
        ;;
    dark)
        dark "$2" down
        sleep "$3"
        dark "$2" up
        ;;
    kill)
        kill -KILL "${targets[$2]}"
        ended "${targets[$2]}" 60
        serve_shared "$2"
        ;;
    esac
}

# exercised FILE: again and again with other seeds, until ./enough is there
exercised() {
    local seed=1
    while [ ! -e enough ]; do
        "$EXERCISE" ops "$1" --fixed --direct --align 4096 --size 262144 --largest 16384 --jobs 4 --stripe 8192 \
            --ops 300 --seed $((seed++)) || return
    done
}

leave_shared() {
    local process mount
    for process in "${targets[@]}" "${stores[@]}"; do kill -CONT "$process" 2>/dev/null || true; done
    for mount in mnt store0.mnt store1.mnt; do umount -lf "$work/$mount" 2>/dev/null || true; done
    links_remove "$lab"
}

thorough+=(shared_disk_shows_nothing_old)
test_shared_disk_shows_nothing_old() {
    need_mount
    paths_lab
    trap leave_shared EXIT
    shared_disk
    local round kind number seconds load kinds=(stall pause kill dark stall)
    background attach.log "${host[@]}" "$ROADTRAIN" attach "${both_paths[@]}" -n "$nqn" --as "fuse:$work/mnt" \
        --keep-alive-tmo 1 --reconnect-delay 1
    until_line attach.log '^ready' "$pid"
    background exercise.log exercised "$work/mnt/nvme0n1"
    load=$pid
    for ((round = 0; round < ROUNDS; round++)); do
        # Each kind once, and then what comes: for shorter than the host waits, or longer.
        kind=${kinds[round < 5 ? round : RANDOM % 5]} number=$((RANDOM % 2)) seconds=$((1 + RANDOM % 6))
        echo "round $round: $kind at target $number, $seconds s"
        shared_fault "$kind" "$number" "$seconds"
        [ $((RANDOM % 3)) = 0 ] || sleep "$((1 + RANDOM % 4))"
        alive "$load" || { cat exercise.log; fail 'the load has ended'; }
    done
    : >enough
    ended "$load" 180
    wait "$load" || { cat exercise.log; fail 'something old was read'; }
    echo "measured: $ROUNDS faults, $(grep -c 'as expected' exercise.log) checked runs"
    "$ROADTRAIN" detach --all
}
