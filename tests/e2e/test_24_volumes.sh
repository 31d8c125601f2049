# shellcheck shell=bash
# Stores of volumes: what hosts have of them, what SPDK's, Cinder's and Kubernetes' clients make of them, what a kill leaves.

# shellcheck source=tests/lib/rpc.sh
. "$top/tests/lib/rpc.sh"

# These install Python packages, or take long.
thorough+=(volumes_spdk_rpc volumes_cinder volumes_csi volumes_killed)

# cinder: leaves the folder of its programs in $cinder; skips the test when it cannot be had
cinder() {
    python_with cinder-29.0.0 cinder==29.0.0
    cinder=$python
}

# xfs: a folder $xfs on a file system that shares extents; 1: there is none here
xfs() {
    truncate -s 40G xfs.img # larger than any store here
    mkdir -p xfs
    mkfs.xfs -q -m reflink=1 xfs.img 2>xfs.log && mount -o loop xfs.img xfs 2>>xfs.log || return 1
    # shellcheck disable=SC2064
    trap "umount -l '$work/xfs'" EXIT
    xfs=$work/xfs
}

# SPDK's client: each method, each error, and all of it again after kill -9.
test_volumes_spdk_rpc() {
    local uuid lvs disk=nqn.2026-11.test:volume
    spdk_clients
    port=$(free_port)
    mkdir -p files/more
    managed --lvstore "vols=$work/vols,size=256MiB"
    s bdev_lvol_get_lvstores && holds s.json '.[0] | .name == "vols" and .total_data_clusters == 64 and
        .free_clusters == 64 and .cluster_size == 4194304 and .block_size == 512'
    lvs=$(jq -r '.[0].uuid' s.json)
    s bdev_lvol_create -l vols thick 20 && uuid=$(jq -r . s.json 2>/dev/null || cat s.json)
    s bdev_lvol_create -u "$lvs" -t thin 1024
    s bdev_get_bdevs -b vols/thick && holds s.json '.[0] | .name == $u and .uuid == $u and .aliases == ["vols/thick"] and
        .product_name == "Logical Volume" and .num_blocks == 40960 and .claimed == false and .driver_specific.lvol ==
        {lvol_store_uuid: $l, base_bdev: $b, thin_provision: false, num_allocated_clusters: 5, snapshot: false,
        clone: false, esnap_clone: false}' --arg u "$uuid" --arg l "$lvs" --arg b "$work/vols"
    s bdev_lvol_get_lvols && holds s.json '[.[].alias] == ["vols/thick", "vols/thin"] and .[1].is_thin_provisioned'
    s nvmf_create_subsystem "$disk" -a
    s nvmf_subsystem_add_ns "$disk" vols/thick -n 5
    s nvmf_subsystem_add_listener "$disk" -t tcp -a 127.0.0.1 -s "$port"
    "$ROADTRAIN" bench -a 127.0.0.1 -s "$port" -n "$disk" --nsid 5 \
        --rw randrw --bs 128k --depth 8 --seconds 1 --verify >bench.log 2>&1 || fail "$(cat bench.log)"
    s bdev_lvol_snapshot vols/thick still && s bdev_lvol_clone vols/still copy
    s bdev_get_bdevs -b vols/still && holds s.json '.[0].driver_specific.lvol | .snapshot and .clones == ["thick", "copy"]'
    s bdev_get_bdevs -b vols/copy && holds s.json '.[0].driver_specific.lvol | .clone and .base_snapshot == "still"'
    s bdev_lvol_inflate vols/copy
    s bdev_lvol_resize vols/copy 40 && s bdev_get_bdevs -b vols/copy && holds s.json '.[0].num_blocks == 81920'
    s bdev_lvol_rename vols/copy other && s bdev_get_bdevs -b vols/other
    s bdev_lvol_decouple_parent vols/thick && s bdev_get_bdevs -b vols/thick &&
        holds s.json '.[0].driver_specific.lvol | .clone == false and .thin_provision'
    s bdev_malloc_create 64 4096 -b memory
    s bdev_lvol_create_lvstore memory fast && s bdev_lvol_create -l fast quick 8
    s bdev_lvol_create_lvstore "$work/files/more" more && s bdev_lvol_create -l more kept 4
    s bdev_lvol_grow_lvstore -l more && s bdev_lvol_rename_lvstore more others && s bdev_lvol_set_read_only others/kept
    s bdev_lvol_clone_bdev vols/thin others begun && s bdev_get_bdevs -b others/begun && holds s.json '.[0].num_blocks == 2097152'
    s bdev_get_bdevs && holds s.json '[.[] | select(.name == "memory").claimed] == [true]'
    s bdev_lvol_get_lvstores -l fast && holds s.json '.[0] | .free_clusters == 14 and .block_size == 4096 and .base_bdev == "memory"'

    wrong -19 'No such device' bdev_get_bdevs '{"name": "vols/none"}'
    wrong -17 'File exists' bdev_lvol_create '{"lvol_name": "thick", "lvs_name": "vols", "size_in_mib": 4}'
    wrong -22 'Invalid argument' bdev_lvol_create '{"lvol_name": "a", "size_in_mib": 4}'
    wrong -19 'No such device' bdev_lvol_create '{"lvol_name": "a", "lvs_name": "none", "size_in_mib": 4}'
    wrong -32602 'No space left on device' bdev_lvol_create '{"lvol_name": "a", "lvs_name": "vols", "size_in_mib": 400}'
    wrong -32603 spdk_json_decode_object bdev_lvol_create '{"lvol_name": "a", "lvs_name": "vols", "size_in_mib": -4}'
    wrong -32602 'File exists' bdev_lvol_snapshot '{"lvol_name": "vols/thick", "snapshot_name": "thin"}'
    wrong -32602 'Invalid argument' bdev_lvol_clone '{"snapshot_name": "vols/thick", "clone_name": "a"}'
    wrong -32602 'Invalid argument' bdev_lvol_resize '{"name": "vols/other", "size_in_mib": 4}'
    wrong -32602 'Operation not permitted' bdev_lvol_resize '{"name": "vols/still", "size_in_mib": 400}'
    wrong -32602 'Invalid argument' bdev_lvol_decouple_parent '{"name": "vols/thin"}'
    wrong -2 'Lvol store none not found' bdev_lvol_rename_lvstore '{"old_name": "none", "new_name": "new"}'
    wrong -32602 'File exists' bdev_lvol_rename_lvstore '{"old_name": "others", "new_name": "fast"}'
    wrong -1 'Operation not permitted' bdev_lvol_rename_lvstore '{"old_name": "vols", "new_name": "new"}'
    wrong -22 'Invalid argument' bdev_lvol_clone_bdev '{"bdev": "memory", "lvs_name": "vols", "clone_name": "a"}'
    wrong -32602 'File exists' bdev_lvol_rename '{"old_name": "vols/other", "new_name": "thin"}'
    wrong -22 'Invalid argument' bdev_lvol_get_lvstores '{"lvs_name": "vols", "uuid": "x"}'
    wrong -17 'File exists' bdev_lvol_create_lvstore '{"bdev_name": "memory", "lvs_name": "vols"}'
    wrong -19 'No such device' bdev_lvol_create_lvstore '{"bdev_name": "none", "lvs_name": "new"}'
    wrong -1 'Operation not permitted' bdev_lvol_create_lvstore '{"bdev_name": "/", "lvs_name": "new"}'
    wrong -1 'Operation not permitted' bdev_lvol_delete_lvstore '{"lvs_name": "vols"}'
    wrong -16 'Device or resource busy' bdev_malloc_delete '{"name": "memory"}'
    wrong -32602 'Invalid parameters' nvmf_subsystem_add_ns "{\"nqn\": \"$disk\", \"namespace\": {\"bdev_name\": \"memory\"}}"

    s bdev_lvol_get_lvols -l vols && cp s.json before.json
    kill -KILL "$target" && ended "$target" 60
    managed --lvstore "vols=$work/vols,size=256MiB"
    s bdev_lvol_get_lvols -l vols && cmp s.json before.json || fail 'other volumes after kill -9'
    s bdev_lvol_get_lvols -l others && holds s.json '[.[].alias] == ["others/kept", "others/begun"]'
    s bdev_get_bdevs -b others/kept && holds s.json '.[0].supported_io_types.write == false'
    s bdev_lvol_get_lvols -l fast && holds s.json '. == []'
    "$ROADTRAIN" bench -a 127.0.0.1 -s "$port" -n "$disk" --nsid 5 \
        --rw randrw --bs 128k --depth 8 --seconds 1 --verify >bench.log 2>&1 || fail "$(cat bench.log)"
    s bdev_lvol_delete vols/thick
    s nvmf_get_subsystems && holds s.json '.[1].namespaces == []'
    s bdev_lvol_delete_lvstore -l others
    [ -z "$(ls files/more)" ] || fail "left: $(ls files/more)"
    for s in still other thin; do "$ROADTRAIN" ctl --rpc "$rpc" rpc bdev_lvol_delete "{\"name\": \"vols/$s\"}" >/dev/null; done
    s bdev_lvol_get_lvstores -l vols && holds s.json '.[0].free_clusters == 64'
}

# A host sees that a volume has grown, and that it has gone.
test_volumes_hosts_hear() {
    local disk=nqn.2026-11.test:grows metrics
    port=$(free_port) nqn=$disk metrics=$(free_port)
    managed --lvstore "vols=$work/vols,size=256MiB" --metrics "127.0.0.1:$metrics"
    r bdev_lvol_create '{"lvol_name": "disk", "lvs_name": "vols", "size_in_mib": 8, "thin_provision": true}'
    r bdev_lvol_get_lvols && is 'map(.created_unix_seconds - now | fabs < 3600) == [true]'
    ! r bdev_lvol_delete '{"name": "vols/none"}' 2>refused.log
    curl -sf "http://127.0.0.1:$metrics/metrics" >metrics.txt
    for line in 'store_volumes{lvstore="vols"} 1' 'store_capacity_bytes{lvstore="vols"} 268435456' \
        'rpc_requests_total{method="bdev_lvol_create",code="0"} 1' 'rpc_requests_total{method="bdev_lvol_delete",code="-19"} 1' \
        'rpc_seconds_count{method="bdev_lvol_create"} 1' 'state_write_errors_total 0'; do
        grep -qF "roadtrain_$line" metrics.txt || fail "no $line: $(grep -E 'store|rpc' metrics.txt)"
    done
    r nvmf_create_subsystem "{\"nqn\": \"$disk\", \"allow_any_host\": true}"
    r nvmf_subsystem_add_ns "{\"nqn\": \"$disk\", \"namespace\": {\"bdev_name\": \"vols/disk\"}}"
    r nvmf_subsystem_add_listener "{\"nqn\": \"$disk\", \"listen_address\": {\"trtype\": \"TCP\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$port\"}}"
    attach
    has_size $((8 << 20))
    qemu-io -f raw -c 'write -P 7 4M 1M' "$uri" >io.log
    r bdev_lvol_resize '{"name": "vols/disk", "size_in_mib": 64}'
    has_size $((64 << 20))
    qemu-io -f raw -c 'read -P 7 4M 1M' -c 'read -P 0 60M 1M' "$uri" >>io.log
    ! grep -q failed io.log || fail "$(cat io.log)"
    # This file system may share nothing, and then a copy would be torn.
    if ! r bdev_lvol_snapshot '{"lvol_name": "vols/disk", "snapshot_name": "still"}' 2>refused.log; then
        grep -q 'Device or resource busy' refused.log || fail "$(cat refused.log)"
    fi
    ! r bdev_lvol_delete '{"name": "vols/disk"}' 2>refused.log || fail 'a volume that a host uses is deleted'
    grep -q 'a host uses it' refused.log || fail "$(cat refused.log)"
    r bdev_lvol_delete '{"name": "vols/disk", "force": true}'
    has_size ''
}

# The same in words, for people and for scripts.
test_volumes_ctl() {
    local c
    managed --lvstore "vols=$work/vols,size=256MiB"
    c() { "$ROADTRAIN" ctl --rpc "$rpc" "$@" >c.out 2>c.log || fail "ctl $*: $(cat c.log)"; }
    c volume create vols/disk 10MiB --thin
    c volume snapshot vols/disk still
    c volume clone vols/still copy
    c volume inflate vols/copy
    c volume resize vols/copy 20MiB
    c volume rename vols/copy other
    c volume list --json && holds c.out '[.[] | [.name, .kind, .capacity_bytes, .parent]] == [["vols/disk", "thin", 12582912, "still"],
        ["vols/still", "snapshot", 12582912, null], ["vols/other", "thick", 20971520, null]]'
    c volume list vols && grep -q 'vols/other .*thick .*20' c.out || fail "$(cat c.out)"
    c store list --json && holds c.out '.[0] | .name == "vols" and .capacity_bytes == 268435456 and .free_bytes == 247463936'
    for c in disk still other; do "$ROADTRAIN" ctl --rpc "$rpc" volume delete "vols/$c"; done
    refused_with 1 'No such device' "$ROADTRAIN" ctl --rpc "$rpc" volume delete vols/disk
    refused_with 2 'STORE/NAME' "$ROADTRAIN" ctl --rpc "$rpc" volume create disk 1GiB
}

# refused_with STATUS TEXT COMMAND...
refused_with() {
    local rc=0
    "${@:3}" >refused.out 2>refused.log || rc=$?
    [ "$rc" = "$1" ] && grep -q "$2" refused.log || fail "status $rc: $(cat refused.log)"
}

# Cinder's drivers, unmodified: over HTTP, as it does. On XFS they snapshot what a host writes to.
test_volumes_cinder() {
    local how=shares web
    cinder
    needs_space 16
    if ! xfs; then how=copies xfs=$work; fi
    mkdir -p io
    port=$(free_port) web=$(free_port)
    echo cinder:secret >credentials && chmod 600 credentials
    managed --rpc-http "127.0.0.1:$web" --rpc-credentials credentials --lvstore "vols=$xfs/vols,size=12GiB"
    echo "$how" | "$cinder/python" "$top/tests/e2e/volumes_cinder.py" "$ROADTRAIN" "$web" "$port" "$work/io" >cinder.log 2>&1 ||
        { cat target.log; fail "$(cat cinder.log)"; }
    end_all "$target"
}

# The calls of the CSI driver in its order: fifty at once that are to be done once, twenty volumes at once.
test_volumes_csi() {
    needs_space 6
    managed --lvstore "vols=$work/vols,size=4GiB"
    python3 "$top/tests/e2e/volumes_csi.py" "$rpc" "$(free_port)" >csi.log 2>&1 || { cat target.log; fail "$(cat csi.log)"; }
}

# needs_space GIB: skips a test of stores that would be larger than what is free
needs_space() {
    [ "$(($(stat -f -c '%a * %S' .) >> 30))" -ge "$1" ] || skip "needs $1 GiB of free space in $work"
}

# A thousand volumes by eight clients, and a kill in the middle.
test_volumes_killed() {
    local port
    needs_space 10
    port=$(free_port)
    managed --lvstore "vols=$work/vols,size=8GiB" --log-level warn
    python3 "$top/tests/e2e/volumes_killed.py" "$rpc" "$work/vols" "$port" "$ROADTRAIN" 1000 "$target" >known.json 2>killed.log ||
        { cat target.log; fail "$(cat killed.log)"; }
    ended "$target" 60
    managed --lvstore "vols=$work/vols,size=8GiB" --log-level warn
    python3 "$top/tests/e2e/volumes_killed.py" "$rpc" "$work/vols" "$port" "$ROADTRAIN" 1000 0 <known.json >killed.log 2>&1 ||
        { cat target.log; fail "$(cat killed.log)"; }
}

# An administrator creates, attaches, detaches and deletes namespaces by commands; all of it outlives kill -9.
test_volumes_managed_by_hosts() {
    local host=nqn.2026-11.test:administrator other=nqn.2026-11.test:other disk=nqn.2026-11.test:managed
    port=$(free_port)
    managed -a 127.0.0.1 -s "$port" --lvstore "vols=$work/vols,size=256MiB"
    c subsystem add -n "$disk" --namespace mem:8MiB
    no 2 'namespace-store <NAME>' subsystem set -n "$disk" --administrator "$host"
    no 2 'administrator <NQN>' subsystem set -n "$disk" --namespace-store vols
    no 1 'no store of volumes none' subsystem set -n "$disk" --administrator "$host" --namespace-store none
    c subsystem set -n "$disk" --administrator "$host" --namespace-store vols
    "$ROADTRAIN" ctl --rpc "$rpc" rpc nvmf_get_subsystems >r.json
    is '.[-1].administrators == [$h] and .[-1].namespace_store == "vols"' --arg h "$host"
    python3 "$here/namespace_management.py" "$port" "$disk" "$host" "$other" >managed.out 2>&1 || {
        cat target.log
        fail "$(cat managed.out)"
    }
    grep -q '^kept 3$' managed.out || fail "$(cat managed.out)"
    c namespace list -n "$disk" && is '[.[].nsid] == [1, 3] and .[1].seen_by == [] and .[1].capacity_bytes == 4194304'
    c volume list && is 'length == 1'
    kill -KILL "$target"
    ended "$target" 60
    managed -a 127.0.0.1 -s "$port" --lvstore "vols=$work/vols,size=256MiB"
    c namespace list -n "$disk" && is '[.[].nsid] == [1, 3] and .[1].seen_by == []'
    c subsystem set -n "$disk" --no-administrators
    "$ROADTRAIN" ctl --rpc "$rpc" rpc nvmf_get_subsystems >r.json
    is '.[-1].administrators == null'
}
