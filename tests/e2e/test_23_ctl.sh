# shellcheck shell=bash
# `roadtrain ctl`: limits that hold, what it says of keys, listeners, stores, clusters, referrals and everything at once.

# shellcheck source=tests/lib/rpc.sh
. "$top/tests/lib/rpc.sh"

# load_of HOST RW SECONDS, load_of HOST RW --ios N: what that host gets of the subsystem $n, in bench.json
load_of() {
    local until=("${@:3}")
    [ $# != 3 ] || until=(--seconds "$3")
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$n" -q "$1" --rw "$2" --bs 4k --size 16MiB --depth 32 \
        "${until[@]}" --json >bench.json 2>bench.log || fail "$(cat bench.log)"
}

# gets IOPS HOST RW: no more than so many, but for a tenth, and most of them: a busy machine may stop for a moment
gets() {
    load_of "$2" "$3" 2
    holds bench.json '.errors == 0 and .iops > $n * 0.5 and .iops < $n * 1.1' --argjson n "$1"
}

# unlimited HOST RW: far more than the limits of these tests
unlimited() {
    load_of "$1" "$2" 1
    holds bench.json '.errors == 0 and .iops > 3000'
}

# reads_now IOPS DEVICE: within a tenth, as the target has counted in a second
reads_now() {
    local before
    r bdev_get_iostat "{\"name\": \"$2\"}" && before=$(jq -c . r.json)
    sleep 1
    r bdev_get_iostat "{\"name\": \"$2\"}"
    jq -e --argjson before "$before" --argjson n "$1" '(.bdevs[0].num_read_ops - $before.bdevs[0].num_read_ops) *
        .tick_rate / (.ticks - $before.ticks) | . > $n * 0.9 and . < $n * 1.1' r.json >/dev/null
}

# A subsystem at which any host may write 64 MiB of memory.
limited_target() {
    n=nqn.2026-11.test:limits
    managed
    port=$(free_port)
    c device add disk mem:64MiB
    c subsystem add -n $n
    c namespace add -n $n device:disk
    c listener add -n $n -a "127.0.0.1:$port"
}

# A host gets no more than it may, and what it could before once the limit is gone; others of a busy machine decide how
# much that is.
test_ctl_limits_hold() {
    local n host=nqn.2026-11.test:tenant
    limited_target
    c host limit -n $n -q $host --iops 300 --burst 2ms
    load_of $host randrw --ios 300
    holds bench.json '.errors == 0 and .iops > 0 and .iops < 350'
    c host limit -n $n -q $host
    c namespace limit -n $n --nsid 1 --read-bandwidth 1MiB
    load_of $host randread --ios 300
    holds bench.json '.errors == 0 and .iops > 0 and .iops < 350'
    c namespace limit -n $n --nsid 1
    load_of $host randrw --ios 3000
    holds bench.json '.errors == 0 and .iops > 350'
}

# Hosts get what they may: reads and writes apart, others what there is; changed while one is connected.
alone+=(ctl_limits_a_host)
thorough+=(ctl_limits_a_host)  # alone with the machine
test_ctl_limits_a_host() {
    local n host=nqn.2026-11.test:tenant other=nqn.2026-11.test:other bench
    limited_target
    c host limit -n $n -q $host --read-iops 1000 --write-iops 500 --burst 2ms && is '.changes | length == 1'
    c host list && is '. | length == 1 and (.[0] | .nqn == $n and .host_nqn == $h and .named == false and .owner == "state" and
        .limits == {read_iops: 1000, write_iops: 500, burst_us: 2000})' --arg n $n --arg h $host
    gets 1000 $host randread
    gets 500 $host randwrite
    unlimited $other randread
    # What a host may do changes while it is connected.
    background load.json "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n $n -q $host --rw randread --bs 4k \
        --size 16MiB --depth 32 --seconds 600 --json
    bench=$pid
    eventually 20 reads_now 1000 disk || fail "$(cat r.json)"
    c host limit -n $n -q $host --iops 2000
    eventually 20 reads_now 2000 disk || fail "$(cat r.json)"
    kill -INT "$bench"
    wait "$bench" || fail "$(cat load.json)"
    # It is there after kill -9, and goes when it is taken away.
    kill -KILL "$target" && ended "$target" 60
    managed
    gets 2000 $host randread
    c host limit -n $n -q $host
    c host list && is '. == []'
    unlimited $host randread
    ! grep -q iops state.toml || fail "$(cat state.toml)"
}

alone+=(ctl_limits_a_namespace)
thorough+=(ctl_limits_a_namespace)  # alone with the machine
test_ctl_limits_a_namespace() {
    local n host=nqn.2026-11.test:tenant
    limited_target
    c namespace limit -n $n --nsid 1 --read-iops 1000 --write-bandwidth 2000KiB
    c namespace list && is '.[0].limits == {read_iops: 1000, written_bytes_per_second: 2048000}'
    gets 1000 $host randread
    gets 500 $host randwrite
    # SPDK's clients change what they know, and see the next larger number.
    r bdev_set_qos_limit '{"name": "disk", "rw_ios_per_sec": 800}'
    r bdev_get_bdevs && is '.[0].assigned_rate_limits == {rw_ios_per_sec: 800, rw_mbytes_per_sec: 0, r_mbytes_per_sec: 0, w_mbytes_per_sec: 2}'
    kill -KILL "$target" && ended "$target" 60
    managed
    gets 800 $host randread
    "$ROADTRAIN" ctl --rpc "$rpc" namespace list >list.txt
    grep -q '800 IOPS, 1000 read IOPS, 2.0 MiB/s written' list.txt || fail "$(cat list.txt)"
    c namespace limit -n $n --nsid 1
    c namespace list && is '.[0].limits == null'
    unlimited $host randread
    no 2 'lets nothing through' namespace limit -n $n --nsid 1 --iops 0
    no 2 'of which limit' host limit -n $n -q $host --burst 1s
    no 2 'has no namespace 7' namespace limit -n $n --nsid 7 --iops 1
    no 2 'nobody' host limit -n $n -q nobody --iops 1
}

# Each verb that test_rpc_ctl has not, once.
test_ctl_keys_and_listeners() {
    local n=nqn.2026-11.test:keys host=nqn.2026-11.test:host tls name
    managed
    port=$(free_port) tls=$(free_port)
    (umask 077 && for name in host ctrl; do "$ROADTRAIN" keys dhchap >files/$name.key || exit 1; done &&
        "$ROADTRAIN" keys tls >files/host.tls)
    for name in host.key ctrl.key host.tls; do
        c key add $name files/$name
    done
    no 1 'Operation not permitted' key add x /etc/hostname
    c device add m mem:4MiB
    c subsystem add -n $n --allow-host nqn.2026-11.test:first
    c namespace add -n $n --nsid 3 \
        device:m,uuid=5a1c5b0e-3f0f-4d0b-9d2c-0123456789ab,nguid=00112233445566778899aabbccddeeff,reservations=files/m.resv &&
        is '.changes[0].nsid == 3'
    c namespace list && is '.[0] | .uuid == "5a1c5b0e-3f0f-4d0b-9d2c-0123456789ab" and .nguid == "00112233-4455-6677-8899-aabbccddeeff"'
    c listener add -n $n -a "127.0.0.1:$port"
    c listener add -n $n -a 127.0.0.1 -s "$tls" --tls --ana non-optimized
    c listener list && is '[.[] | [.tls, .ana]] == [["off", "optimized"], ["required", "non-optimized"]]'
    c listener set -n $n -a "127.0.0.1:$port" --ana inaccessible
    c listener list -n $n && is '.[0].ana == "inaccessible"'
    c listener set -n $n -a "127.0.0.1:$port" --ana optimized
    c host allow -n $n -q $host --dhchap-key host.key --dhchap-ctrl-key ctrl.key --tls-key host.tls
    c host list && is '.[] | select(.host_nqn == $h) | .dhchap_key == "host.key" and .dhchap_ctrl_key == "ctrl.key" and .named' --arg h $host
    c key list && is '[.[] | [.name, .host_count]] == [["host.key", 1], ["ctrl.key", 1], ["host.tls", 1]]'
    no 1 'Device or resource busy' key remove host.key
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$tls" -n $n -q $host --tls --tls-key files/host.tls \
        --dhchap-secret files/host.key --dhchap-ctrl-secret files/ctrl.key >identify.txt || fail "$(cat target.log)"
    refused 'key' "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n $n -q $host --dhchap-secret files/ctrl.key
    c host keys -n $n -q $host
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n $n -q $host >identify.txt
    c host deny -n $n -q $host
    c key remove host.key
    c key list && is '[.[].name] == ["ctrl.key", "host.tls"]'
}

test_ctl_stores_clusters_and_everything() {
    local n=nqn.2026-11.test:all
    managed
    port=$(free_port)
    mkdir files/vols
    c store create vols "$work/files/vols" && is 'length == 36'
    c device add m mem:64MiB
    c store create quick m
    c store list && is '[.[].name] == ["vols", "quick"]'
    c volume create quick/v 8MiB
    c subsystem add -n $n
    c namespace add -n $n device:quick/v
    c listener add -n $n -a "127.0.0.1:$port"
    # A store with a volume that a host uses stays unless it is forced.
    background bench.out "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n $n --rw read --bs 4k --size 1MiB --seconds 600
    local bench=$pid
    eventually 10 connected || fail "$(cat bench.out)"
    no 1 'Device or resource busy' store delete quick
    c volume list && is 'length == 1'
    c store delete quick --force
    ended "$bench" 20
    c volume list && is '. == []'
    c store delete vols
    no 1 'No such device' store delete vols
    # Ceph: the cluster has a name before it is reached; there is none here.
    printf '[global]\nmon_host = 127.0.0.1:1\nclient_mount_timeout = 1\nrados_mon_op_timeout = 1\n' >files/ceph.conf
    c cluster add ceph --ceph-id tenant --ceph-conf files/ceph.conf && is '. == "ceph"'
    c cluster list && is '.[0] | .name == "ceph" and .ceph_id == "tenant" and (.ceph_conf | endswith("files/ceph.conf"))'
    no 2 'ctl cluster add' device add image rbd:disks/one,conf=files/ceph.conf
    c referral add -a 192.0.2.1
    c referral list && is '.[0] | .traddr == "192.0.2.1" and .trsvcid == "8009"'
    # All of it in one file, and back.
    c device add void null:1MiB
    c namespace add -n $n device:void
    c namespace limit -n $n --nsid 1 --read-iops 1000
    c host limit -n $n -q nqn.2026-11.test:host --iops 5
    r nvmf_create_transport '{"trtype": "tcp"}'
    c config save --spdk -o saved.json && is '. == true'
    no 1 'File exists' config load saved.json
    c referral remove -a 192.0.2.1
    c subsystem remove -n $n
    c device remove void
    c device remove m
    c cluster remove ceph
    c config load saved.json && is '.calls > 5'
    c config save --spdk && cmp <(jq -S . r.json) <(jq -S . saved.json) || fail 'it is not what was saved'
    c namespace list && is '.[0].limits == {read_iops: 1000}'
    echo '[]' >odd.json
    no 2 'TOML' config load odd.json
}

# A cluster that is not there: librados tries for ten seconds.
thorough+=(ctl_cluster_that_is_not_there)
test_ctl_cluster_that_is_not_there() {
    managed
    printf '[global]\nmon_host = 127.0.0.1:1\nclient_mount_timeout = 1\nrados_mon_op_timeout = 1\n' >files/ceph.conf
    c cluster add ceph --ceph-conf files/ceph.conf
    no 1 'device image: ' device add image rbd:disks/one --cluster ceph
    c cluster remove ceph
}

# connected: a host is, at $n
connected() {
    c connection list -n "$n"
    [ "$(jq length r.json)" != 0 ]
}
