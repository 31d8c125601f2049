# shellcheck shell=bash
# Images: served, attached, resized, taken away.

# shellcheck source=tests/lib/rpc.sh
. "$top/tests/lib/rpc.sh"

thorough+=(rbd_block_status rbd_many_images rbd_by_rpc rbd_figures_for_the_ceph_collector)

test_rbd_carries_verified_load() {
    ceph_lab
    serve --namespace "rbd:rbd/disk,$image,create=64MiB"
    [ "$(rbd_tool ls)" = disk ]
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --json >status.json
    holds status.json '[.. | .store? // empty] == ["rbd:rbd/disk"]'
    attach
    fio --name=verify --ioengine=nbd --uri="$uri" --rw=randwrite --bs=4k --size=16M --io_size=4M --iodepth=16 \
        --verify=crc32c --verify_fatal=1 --end_fsync=1 --eta=never --output=fio.log
    qemu-io -f raw -c 'write -P 5 0 1M' -c 'discard 0 512k' -c 'write -z 512k 512k' -c 'read -P 0 512k 512k' "$uri" >io.log
    # Hosts are notified of another size.
    rbd_tool resize rbd/disk --size 128M >resize.log
    eventually 30 prints '.[0].devices[0].capacity_bytes == 134217728' "$ROADTRAIN" status --json
    # Another target is refused, until this one has ended.
    local other_port rc=0
    other_port=$(free_port)
    "$ROADTRAIN" serve -a 127.0.0.1 -s "$other_port" -n "$nqn" --namespace "rbd:rbd/disk,$image" >other.log 2>&1 || rc=$?
    [ $rc = 1 ] && grep -q 'rbd:rbd/disk: .* has its exclusive lock' other.log || { cat other.log; fail "status $rc"; }
    "$ROADTRAIN" detach --all >detach.log
    kill -TERM "$target"
    ended "$target" 15
    wait "$target" || fail "status $?"
    serve --namespace "rbd:rbd/disk,$image"
    "$ROADTRAIN" bench -a 127.0.0.1 -s "$port" -n "$nqn" --rw randrw --bs 4k --depth 16 --seconds 2 --verify --json >bench.json
    holds bench.json '.errors == 0 and .iops > 0'
}

# rbd_map: block status for NBD clients: offset, length and kind of each extent
rbd_map() { nbdinfo --map --json "$uri" | jq -c '[.[] | [.offset, .length, .type]]'; }

# Block status is that of the image's objects, with an object map and without one, and of what a clone has of its parent.
test_rbd_block_status() {
    ceph_lab
    local features disk m=1048576
    for features in layering,exclusive-lock,object-map,fast-diff layering,exclusive-lock; do
        disk=disk-${#features}
        rbd_tool create rbd/$disk --size 64M --image-feature "$features"
        port=$(free_port)
        serve --namespace "rbd:rbd/$disk,$image"
        attach
        [ "$(rbd_map)" = "[[0,$((64 * m)),3]]" ] || fail "$features: $(rbd_map)"
        qemu-io -f raw -c 'write -P 1 5M 4k' -c 'write -P 2 40M 5M' "$uri" >io.log
        [ "$(rbd_map)" = "[[0,$((4 * m)),3],[$((4 * m)),$((4 * m)),0],[$((8 * m)),$((32 * m)),3],$(
        )[$((40 * m)),$((8 * m)),0],[$((48 * m)),$((16 * m)),3]]" ] || fail "$features: $(rbd_map)"
        qemu-io -f raw -c 'discard 40M 4M' "$uri" >io.log
        [ "$(rbd_map)" = "[[0,$((4 * m)),3],[$((4 * m)),$((4 * m)),0],[$((8 * m)),$((36 * m)),3],$(
        )[$((44 * m)),$((4 * m)),0],[$((48 * m)),$((16 * m)),3]]" ] || fail "$features: $(rbd_map)"
        nbdcopy "$uri" copy.img
        qemu-img compare -f raw -F raw copy.img "$uri"
        # A clone has the parent's objects until it has its own. The gateway makes the snapshot: one that has ended stays a
        # watcher for 30 s, for which `snap create` waits.
        rbd_tool snap create rbd/$disk@s
        rbd_tool snap protect rbd/$disk@s
        rbd_tool clone rbd/$disk@s rbd/$disk-clone
        rbd_status_ends
        port=$(free_port)
        serve --namespace "rbd:rbd/$disk-clone,$image"
        attach
        qemu-io -f raw -c 'write -P 3 20M 4k' -c 'read -P 1 5M 4k' "$uri" >io.log
        rbd_map | jq -e --argjson m $m '[.[] | select(.[2] == 0) | [.[0] / $m, .[1] / $m]] as $data |
            ([5, 20, 44] | all(. as $at | $data | any(.[0] <= $at and .[0] + .[1] > $at))) and
            ([0, 12, 30, 60] | all(. as $at | $data | all(.[0] > $at or .[0] + .[1] <= $at)))' >map.log ||
            fail "clone, $features: $(rbd_map)"
        nbdcopy "$uri" copy.img
        qemu-img compare -f raw -F raw copy.img "$uri"
        rbd_status_ends
    done
}

# rbd_status_ends: attachment and target end
rbd_status_ends() {
    "$ROADTRAIN" detach --all >detach.log
    kill -TERM "$target"
    ended "$target" 15
}

# What was acknowledged is there after target and OSD were killed.
test_rbd_survives_crashes() {
    ceph_lab
    # Ceph waits for 30 s until it takes a client for dead; here that is shorter.
    ceph_tool config set osd osd_client_watch_timeout 5
    serve --namespace "rbd:rbd/disk,$image,create=64MiB"
    attach --reconnect-delay 1
    background fio.log fio --name=load --ioengine=nbd --uri="$uri" --rw=randwrite --bs=4k --size=4M --iodepth=8 \
        --verify=crc32c --verify_fatal=1 --loops=100000 --trigger-file=enough --eta=never
    local load=$pid
    data_moves
    "$cluster" kill-osd "$ceph" 0
    "$cluster" start-osd "$ceph" 0
    data_moves
    kill -KILL "$target"
    ended "$target" 60
    rbd_took_over
    data_moves
    : >enough
    ended "$load" 120
    wait "$load" || { cat fio.log; fail 'the load failed'; }
    ! grep -E 'err= *[1-9]|verify:' fio.log || fail 'the load failed'
}

# rbd_took_over: serves again, as soon as the cluster knows that the target is gone
rbd_took_over() {
    local n
    for ((n = 0; n < 200; n++)); do
        background target.log env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" \
            -n "$nqn" --namespace "rbd:rbd/disk,$image"
        target=$pid
        while alive "$target"; do
            ! grep -q '^ready' target.log || return 0
            sleep 0.1
        done
        grep -q 'has its exclusive lock' target.log || { cat target.log; fail 'not served again'; }
        sleep 0.5
    done
    fail 'the lock of a dead target stays'
}

# A full cluster is reported in the log and to hosts; existing data can be read and discarded, and writes resume when there
# is room.
test_rbd_says_when_the_cluster_is_full() {
    ceph_lab
    serve --namespace "rbd:rbd/disk,$image,create=64MiB"
    attach
    qemu-io -f raw -c 'write -P 5 0 8M' "$uri" >io.log
    is_full full
    timeout 20 qemu-io -f raw -c 'write -P 6 16M 1M' "$uri" >full.log 2>&1 || true
    grep -q 'write failed: No space left on device' full.log || fail 'no error'
    grep -q 'ERROR the cluster, its pool or a quota is full: make room image=rbd/disk' target.log
    timeout 20 qemu-io -f raw -c 'read -P 5 0 8M' -c 'discard 0 4M' -c 'read -P 0 0 4M' "$uri" >io.log
    is_full none
    qemu-io -f raw -c 'write -P 6 16M 1M' -c 'read -P 6 16M 1M' "$uri" >io.log
}

# is_full full|none: the OSD says so, and the cluster knows
is_full() {
    ceph_tool tell osd.0 injectfull "$1"
    eventually 120 pool_is "$1"
}

# pool_is full|none: the pool `rbd` has that flag, or not
pool_is() {
    ceph_tool osd dump
    case $1 in
    full) grep -qE "^pool .*'rbd'.*[ ,]full[, ]" ceph.out ;;
    none) ! grep -qE "^pool .*'rbd'.*[ ,]full[, ]" ceph.out ;;
    esac
}

# Two hundred images in one process: how long it takes to start, and what it costs.
test_rbd_many_images() {
    ceph_lab
    local n images=() started created hundredths ready_seconds=300
    for ((n = 0; n < 200; n++)); do images+=(--namespace "rbd:rbd/disk$n,$image,create=1MiB"); done
    started=${EPOCHREALTIME/./}
    serve "${images[@]}"
    created=$(((${EPOCHREALTIME/./} - started) / 1000))
    kill -TERM "$target"
    ended "$target" 30
    wait "$target" || fail "status $?"
    started=${EPOCHREALTIME/./}
    serve "${images[@]}"
    started=$(((${EPOCHREALTIME/./} - started) / 1000))
    hundredths=$(awk '/^Pss:/ {printf "%d", $2 * 100 / 1024 / 200}' "/proc/$target/smaps_rollup")
    echo "measured: 200 images: ready after $started ms ($created ms with making them)," \
        "$((hundredths / 100)).$(printf %02d $((hundredths % 100))) MiB for each;" \
        "$(find "/proc/$target/task" -mindepth 1 -maxdepth 1 | wc -l) threads and" \
        "$(find "/proc/$target/fd" -mindepth 1 | wc -l) descriptors for all"
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" --json >identify.json
    holds identify.json '[.. | .nguid? // empty] | unique | length == 200'
}

# Without Ceph's library, or with a wrong configuration, one line says what to do; everything else works.
test_rbd_says_what_is_wrong() {
    [ "$(id -u)" = 0 ] || skip 'needs root to hide the library'
    refuses() {
        local rc=0
        "$@" serve -a 127.0.0.1 -s "$(free_port)" -n nqn.2026-11.test:e2e --namespace rbd:rbd/disk,conf=/nowhere \
            >serve.log 2>&1 || rc=$?
        [ $rc = 1 ] && [ "$(wc -l <serve.log)" = 1 ] || { cat serve.log; fail "status $rc"; }
    }
    # shellcheck disable=SC2016
    refuses unshare --mount bash -euc '
        for library in $(ldconfig -p | sed -n "s/.*librbd\.so\.1 .*=> //p"); do
            mount --bind /dev/null "$library"
        done
        exec "$@"' bash "$ROADTRAIN"
    grep -q 'rbd:rbd/disk: needs librbd, which is not here: install the package librbd1' serve.log ||
        { cat serve.log; fail 'unclear'; }
    ldconfig -p | grep -q 'librbd\.so\.1 ' || return 0
    refuses "$ROADTRAIN"
    grep -q 'name the file with conf=FILE' serve.log || { cat serve.log; fail 'unclear'; }
}

# Snapshots and clones by the control plane: created, listed, protected, cloned, and rolled back to while no host uses the disk.
test_rbd_snapshots() {
    ceph_lab
    serve --namespace "rbd:rbd/disk,$image,create=64MiB" --namespace "mem:1MiB"
    snapshot() { env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl namespace snapshot "$@"; }
    denied() {
        local rc=0
        snapshot "${@:3}" >denied.log 2>&1 || rc=$?
        [ $rc = "$1" ] && grep -qE "$2" denied.log || { cat denied.log; fail "status $rc of ${*:3}"; }
    }
    attach
    qemu-io -f raw -c 'write -P 1 0 1M' "$uri" >io.log
    snapshot create --nsid 1 one
    qemu-io -f raw -c 'write -P 2 0 1M' "$uri" >io.log
    snapshot create --nsid 1 two --json >list.json
    holds list.json '[.snapshots[] | .name] == ["one", "two"] and .snapshots[0].capacity_bytes == 67108864 and .snapshots[0].created_unix_seconds > 0'
    [ "$(rbd_tool snap ls rbd/disk --format json | jq -c '[.[].name]')" = '["one","two"]' ]
    denied 2 'snapshot one exists already' create --nsid 1 one
    denied 2 'there is no snapshot none' remove --nsid 1 none
    denied 1 'has no snapshots' list --nsid 2
    denied 2 'namespace 7 of .* is not served here' list --nsid 7
    # A clone is a disk of its own; what it is made of stays.
    snapshot protect --nsid 1 one
    denied 1 'is protected' remove --nsid 1 one
    snapshot clone --nsid 1 one rbd/copy
    denied 2 'an image rbd/copy exists already' clone --nsid 1 one rbd/copy
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl namespace add "rbd:rbd/copy,$image" >add.log
    "$ROADTRAIN" detach --all >detach.log
    attach --nsid 3
    qemu-io -f raw -c 'read -P 1 0 1M' -c 'write -P 3 0 1M' "$uri" >io.log
    # No disk changes while a host is connected.
    denied 1 'is connected' rollback --nsid 1 one
    "$ROADTRAIN" detach --all >detach.log
    # Nor where another subsystem shows the image, read-only.
    local reader=nqn.2026-11.test:reader
    changed() { env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl "$@" >target.out; }
    changed subsystem add -n $reader --namespace "rbd:rbd/disk,$image,ro,nguid=$(printf '%032x' 7)"
    nqn=$reader attach
    denied 1 "is connected to $reader" rollback --nsid 1 one -n "$nqn"
    "$ROADTRAIN" detach --all >detach.log
    changed subsystem remove -n $reader
    snapshot rollback --nsid 1 one
    attach
    qemu-io -f raw -c 'read -P 1 0 1M' -c 'write -P 4 0 1M' -c 'read -P 4 0 1M' "$uri" >io.log
    "$ROADTRAIN" detach --all >detach.log
    snapshot remove --nsid 1 two
    snapshot list --nsid 1 >list.log
    [ "$(cat list.log)" = 'one 67108864 bytes protected' ] || fail "$(cat list.log)"
    # This queries all images that may be clones of it.
    snapshot unprotect --nsid 1 one
    snapshot list --nsid 1 >list.log
    [ "$(cat list.log)" = 'one 67108864 bytes' ] || fail "$(cat list.log)"
}

# rbd_shake SEED: random writes, zeroes and discards at $uri
rbd_shake() {
    local n commands=()
    RANDOM=$1
    for n in 1 2 3 4 5 6 7 8; do
        case $((RANDOM % 4)) in
            0) commands+=(-c "write -z $((RANDOM * 1500)) $((RANDOM * 64 + 1))") ;;
            1) commands+=(-c "discard $((RANDOM % 60))M $((RANDOM % 3 + 1))M") ;;
            *) commands+=(-c "write -P $((RANDOM % 255 + 1)) $((RANDOM * 1500)) $((RANDOM * 16 + 1))") ;;
        esac
    done
    qemu-io -f raw "${commands[@]}" -c flush "$uri" >shake.log 2>&1 || fail "$(cat shake.log)"
}

# rbd_increment NSID IMAGE FROM TO: puts the differences into restored.img, which is that snapshot then
rbd_increment() {
    local offset bytes kind
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl snapshot diff -n "$nqn" --nsid "$1" "$3" "$4" --json >diff.json
    rbd_tool export "rbd/$2@$4" - >snapshot.img 2>export.log
    truncate -s "$(jq .to_bytes diff.json)" restored.img
    while read -r offset bytes kind; do
        case $kind in
            zero) fallocate -p -o "$offset" -l "$bytes" restored.img ;;
            data) dd if=snapshot.img of=restored.img bs=1M iflag=skip_bytes,count_bytes oflag=seek_bytes \
                skip="$offset" seek="$offset" count="$bytes" conv=notrunc status=none ;;
        esac
    done < <(jq -r '.ranges[] | "\(.offset) \(.bytes) \(.kind)"' diff.json)
    cmp restored.img snapshot.img
}

# A backup of an image by increments: each is what differs between two snapshots, also of a clone and of a larger image.
test_rbd_snapshot_differences() {
    ceph_lab
    local n
    rbd_tool create rbd/disk --size 64M
    serve --namespace "rbd:rbd/disk,$image" --namespace "mem:1MiB"
    snapshot() { env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl snapshot "$@"; }
    attach
    rbd_shake 1
    snapshot create --nsid 1 s0
    rbd_tool export rbd/disk@s0 - >restored.img 2>export.log
    for n in $(seq 8); do
        rbd_shake $((n + 50))
        snapshot create --nsid 1 "s$n"
        rbd_increment 1 disk "s$((n - 1))" "s$n"
    done
    # The present blocks differ by what is written now.
    qemu-io -f raw -c 'write -P 9 20M 4k' -c flush "$uri" >io.log
    snapshot diff --nsid 1 s8 --json >diff.json
    holds diff.json '.to == null and (.ranges | length == 1) and .ranges[0].offset == 20971520 and .ranges[0].kind == "data" and .ranges[0].bytes == 4096'
    snapshot diff --nsid 1 s0 s8 --json >diff.json
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl rpc roadtrain_diff_snapshots \
        "{\"nqn\": \"$nqn\", \"nsid\": 1, \"from\": \"s0\", \"to\": \"s8\", \"ranges_max\": 1}" >first.json
    [ "$(jq -c '.ranges[0]' diff.json)" = "$(jq -c '.ranges[0]' first.json)" ]
    ! snapshot diff --nsid 1 s8 s0 2>wrong.log || fail 'a newer snapshot first'
    grep -q 'name the older one first' wrong.log || fail "$(cat wrong.log)"
    ! snapshot diff --nsid 1 none s0 2>wrong.log || fail 'a snapshot that is not there'
    grep -q 'no snapshot none' wrong.log || fail "$(cat wrong.log)"
    ! snapshot diff --nsid 2 s0 2>wrong.log || fail 'memory has snapshots'
    # A clone has its parent's blocks from the start. The larger part of the image was zeroes before.
    snapshot protect --nsid 1 s8
    snapshot clone --nsid 1 s8 rbd/copy
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl namespace add "rbd:rbd/copy,$image" >add.log
    "$ROADTRAIN" detach --all >detach.log
    attach --nsid 3
    snapshot create --nsid 3 c0
    rbd_tool export rbd/copy@c0 - >restored.img 2>export.log
    rbd_shake 90
    rbd_tool resize rbd/copy --size 80M >resize.log 2>&1
    has_size $((80 << 20))
    qemu-io -f raw -c 'write -P 5 70M 64k' -c flush "$uri" >io.log
    snapshot create --nsid 3 c1
    rbd_increment 3 copy c0 c1
    holds diff.json '.from_bytes == 67108864 and .to_bytes == 83886080'
}

# A device by RPC: its cluster has a name, and both are there after a restart.
test_rbd_by_rpc() {
    ceph_lab
    local a=nqn.2026-11.test:rbd
    rbd_tool create rbd/disk --size 64M
    managed --file-root "$ceph"
    port=$(free_port)
    wrong -1 'Operation not permitted' bdev_rbd_register_cluster '{"name": "lab", "config_file": "/etc/passwd"}'
    r bdev_rbd_register_cluster "{\"name\": \"lab\", \"user_id\": \"tenant\", \"config_file\": \"$ceph/ceph.conf\"}" && is '. == "lab"'
    wrong -17 'File exists' bdev_rbd_register_cluster '{"name": "lab"}'
    r bdev_rbd_get_clusters_info '{"name": "lab"}' && is '.[0] | .cluster_name == "lab" and .user_id == "tenant"'
    wrong -22 'Invalid argument' bdev_rbd_create '{"pool_name": "rbd", "rbd_name": "none", "block_size": 512, "cluster_name": "lab"}'
    r bdev_rbd_create '{"pool_name": "rbd", "rbd_name": "disk", "block_size": 4096, "cluster_name": "lab"}' && is '. == "Ceph0"'
    r bdev_get_bdevs '{"name": "Ceph0"}' && is '.[0] | .product_name == "Ceph Rbd Disk" and .num_blocks == 16384 and
        .driver_specific.rbd.pool_name == "rbd" and .driver_specific.rbd.rbd_name == "disk"'
    wrong -16 'Device or resource busy' bdev_rbd_unregister_cluster '{"name": "lab"}'
    r nvmf_create_subsystem "{\"nqn\": \"$a\", \"allow_any_host\": true}"
    r nvmf_subsystem_add_ns "{\"nqn\": \"$a\", \"namespace\": {\"bdev_name\": \"Ceph0\"}}"
    r nvmf_subsystem_add_listener "{\"nqn\": \"$a\", \"listen_address\": {\"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$port\"}}"
    "$ROADTRAIN" bench -a 127.0.0.1 -s "$port" -n "$a" --rw randrw --bs 4k --depth 16 --seconds 1 --verify --json >bench.json
    holds bench.json '.errors == 0 and .iops > 0'
    # Larger only: who makes it smaller has to know what he does.
    wrong -22 'Invalid argument' bdev_rbd_resize '{"name": "Ceph0", "new_size": 32}'
    r bdev_rbd_resize '{"name": "Ceph0", "new_size": 96}'
    [ "$(rbd_tool info rbd/disk --format json | jq .size)" = 100663296 ] || fail 'the image has another size'
    r bdev_rbd_resize '{"name": "Ceph0", "new_size": 96}'
    r bdev_get_bdevs '{"name": "Ceph0"}' && is '.[0].num_blocks == 24576'
    r framework_get_config '{"name": "bdev"}' && cp r.json saved.json
    kill -TERM "$target" && ended "$target" 15
    managed --file-root "$ceph"
    r framework_get_config '{"name": "bdev"}' && cmp r.json saved.json || fail 'another configuration after a restart'
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$a" >identify.txt
    r bdev_rbd_delete '{"name": "Ceph0"}'
    r bdev_rbd_unregister_cluster '{"name": "lab"}'
    [ "$(rbd_tool ls)" = disk ] || fail 'the image is gone'
}

# The collector of Ceph's own gateway, unmodified, finds its figures at a target of ours, and they are what ours say.
test_rbd_figures_for_the_ceph_collector() {
    python_with ceph-nvmeof-1.5.1 'ceph-nvmeof==1.5.1' 'spdk==25.5'
    ceph_lab
    local a=nqn.2026-11.test:rbd metrics host
    rbd_tool create rbd/disk --size 64M
    metrics=127.0.0.1:$(free_port)
    managed --file-root "$ceph" --metrics "$metrics"
    port=$(free_port)
    r bdev_rbd_register_cluster "{\"name\": \"lab\", \"user_id\": \"tenant\", \"config_file\": \"$ceph/ceph.conf\"}"
    r bdev_rbd_create '{"pool_name": "rbd", "rbd_name": "disk", "block_size": 4096, "cluster_name": "lab", "name": "disk0"}'
    r nvmf_create_subsystem "{\"nqn\": \"$a\", \"allow_any_host\": true, \"serial_number\": \"S1\"}"
    r nvmf_subsystem_add_ns "{\"nqn\": \"$a\", \"namespace\": {\"bdev_name\": \"disk0\"}}"
    r nvmf_subsystem_add_listener "{\"nqn\": \"$a\", \"listen_address\": {\"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$port\"}}"
    nqn=$a attach --hostnqn nqn.2026-11.test:host
    qemu-io -f raw -c 'write -P 5 0 1M' -c 'read 0 2M' "$uri" >io.log
    eventually 20 has_counted
    HOSTNAME=here "$python/python" "$top/tests/ceph/collector.py" "$rpc" "$metrics" >collected.txt 2>collector.log || { cat collector.log; fail 'it does not collect'; }
    [ ! -s collector.log ] || { cat collector.log; fail 'it complains'; }
    curl -sS "http://$metrics/metrics" >metrics.txt
    collected bdev_metadata 'bdev_name="disk0",block_size="4096",namespace="",pool_name="rbd",rbd_name="disk"' 1
    collected bdev_capacity_bytes 'bdev_name="disk0"' 67108864
    collected bdev_read_bytes_total 'bdev_name="disk0"' 2097152
    collected bdev_written_bytes_total 'bdev_name="disk0"' 1048576
    collected subsystem_metadata 'allow_any_host="yes",group="_null_",ha_enabled="yes",model_number="Roadtrain",nqn="'"$a"'",serial_number="S1"' 1
    collected subsystem_namespace_count "nqn=\"$a\"" 1
    collected host_connection_state 'gw_name="ours",host_addr="127.0.0.1:'"$port"'",host_nqn="nqn.2026-11.test:host",nqn="'"$a"'"' 1
    grep -q '^ceph_nvmeof_reactor_seconds_total{mode="busy",name=".*poll.*"} ' collected.txt || { cat collected.txt; fail 'no reactor'; }
    local operations
    for operations in reads writes; do
        [ "$(sed -n "s/^ceph_nvmeof_bdev_${operations}_completed_total{bdev_name=\"disk0\"} //p" collected.txt | cut -d. -f1)" = \
            "$(sed -n "s/^roadtrain_bdev_${operations}_completed_total{bdev_name=\"disk0\"} //p" metrics.txt)" ] || fail "other $operations"
    done
    local figure
    for figure in subsystem_{listener,host,namespace}_count subsystem_namespace_limit; do
        [ "$(sed -n "s/^ceph_nvmeof_$figure{.*} //p" collected.txt | cut -d. -f1)" = \
            "$(sed -n "s/^roadtrain_$figure{.*} //p" metrics.txt)" ] || fail "other $figure"
    done
    grep -q '^roadtrain_bdev_metadata{bdev_name="disk0",pool_name="rbd",namespace="",rbd_name="disk",block_size="4096",product_name="Ceph Rbd Disk",device="rbd/disk"} 1$' metrics.txt ||
        fail "$(grep bdev_metadata metrics.txt)"
}

# has_counted: whether the target has counted all that was read and written
has_counted() {
    curl -sS "http://$metrics/metrics" >metrics.txt
    grep -q '^roadtrain_bdev_read_bytes_total{.*} 2097152$' metrics.txt &&
        grep -q '^roadtrain_bdev_written_bytes_total{.*} 1048576$' metrics.txt
}

# collected NAME LABELS VALUE: that is what the collector says
collected() {
    awk -v "series=ceph_nvmeof_$1{$2}" -v "value=$3" '$0 ~ /^[^#]/ && index($0, series " ") == 1 && $NF == value {found = 1} END {exit !found}' collected.txt ||
        { grep "^ceph_nvmeof_$1" collected.txt; fail "not so: $1{$2} $3"; }
}
