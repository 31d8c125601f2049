# shellcheck shell=bash
# The cluster that the tests of a run share: one monitor, one OSD with BlueStore, cephx. The first test that needs it
# starts it, the end of the run stops it, also after Ctrl-C. Each test finds it as new: running, with an empty pool `rbd`
# and no other one, nothing blocklisted, its own options. A cluster that cannot be made so is replaced.

cluster=$top/tests/ceph/cluster.sh
suite=$(mktemp -d)
ceph=$suite/ceph
outside=()     # before a command: it runs in the network that this machine had before
own_network='' # not empty: the run has a network of its own, in which the cluster is 192.0.2.1

# run_shared FOLDER [ARGUMENTS]: runs the folder's tests
run_shared() {
    local rc
    trap 'end_shared' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    [ "/proc/self/fd/$CEPH_OUTSIDE" -ef /proc/self/ns/net ] || configure_network
    run_folder "$@" # with || behind it no failing command would end a test
    rc=$?
    [ $rc = 0 ] || keep_cluster_logs
    return $rc
}

configure_network() {
    local last
    own_network=1 outside=(nsenter "--net=/proc/self/fd/$CEPH_OUTSIDE")
    ip link set lo up
    # The cluster, a host, and the two gateways of docs/guide/ceph.md.
    for last in 1 9 7 8; do ip addr add 192.0.2.$last/32 dev lo; done
}

end_shared() {
    trap '' INT TERM HUP
    # Interrupted: ends a cluster that is being started, which takes its time, then the test and its processes.
    local starting
    if starting=$(cat "$suite/starting" 2>/dev/null) && kill -TERM "$starting" 2>/dev/null; then
        (ended "$starting" 120)
    fi
    # shellcheck disable=SC2046
    end_all $(jobs -p) $(cat "${work-}/.pids" 2>/dev/null)
    [ ! -d "$ceph" ] || "$cluster" stop "$ceph" >>"$suite/stop.log" 2>&1
    rm -rf --one-file-system "$suite" "${work:-$suite}"
}

# keep_cluster_logs: those of this run's clusters stay, to find the cause of a failure
keep_cluster_logs() {
    local kept=$top/target/test-logs/ceph-cluster log
    rm -rf "$kept"
    for log in "$suite"/*/log; do
        [ ! -d "$log" ] || { mkdir -p "$kept" && cp -r "$log" "$kept/$(basename "$(dirname "$log")")"; }
    done
    [ ! -d "$kept" ] || echo "logs of the cluster: $kept"
}

need_ceph() {
    local program
    for program in ceph-mon ceph-osd rbd; do
        command -v $program >/dev/null || skip "no $program"
    done
}

need_own_network() { [ -n "$own_network" ] || skip 'a network namespace needs root'; }

# ceph_lab: the cluster as new, in $ceph; $image begins or ends a namespace
ceph_lab() {
    need_ceph
    [ ! -e "$ceph/ready" ] || renew_cluster >renew.log 2>&1 || replace_cluster
    [ -e "$ceph/ready" ] || start_cluster
    image=conf=$ceph/ceph.conf,id=tenant
}

start_cluster() {
    local start=$SECONDS rc=0
    "$cluster" start "$ceph" --auth cephx --store bluestore --size 16 ${own_network:+--address 192.0.2.1} \
        >start.log 2>&1 &
    echo $! >"$suite/starting"
    wait $! || rc=$?
    rm "$suite/starting"
    [ $rc = 0 ] || fail "no cluster: $(cat start.log)"
    echo "measured: started the cluster in $((SECONDS - start)) s"
}

# renew_cluster: OSDs that were killed or frozen run again, and nothing of the last test is left
renew_cluster() {
    kill -0 "$(<"$ceph/run/mon.a.pid")" && "$cluster" start-osd "$ceph" 0 &&
        timeout 300 /usr/bin/python3 "$top/tests/ceph/renew.py" "$ceph/ceph.conf"
}

replace_cluster() {
    cat renew.log
    echo 'measured: the last test left a cluster that cannot be used: it is replaced'
    "$cluster" stop "$ceph" >stop.log 2>&1
    mv "$ceph" "$suite/replaced-$RANDOM"
}

rbd_tool() { "$cluster" exec "$ceph" -- rbd "$@"; }

# ceph_tool ARGUMENTS: the command `ceph`; its output is in ceph.out
ceph_tool() { "$cluster" exec "$ceph" -- ceph "$@" >ceph.out 2>&1 || fail "ceph $*: $(cat ceph.out)"; }

# data_moves [FOLDER]: the host with that runtime directory moves another MiB
data_moves() {
    local status=(env "ROADTRAIN_RUNTIME_DIR=${1:-$ROADTRAIN_RUNTIME_DIR}" "$ROADTRAIN" status --json)
    eventually 120 prints_anyway '.[0].data_bytes' "${status[@]}"
    eventually 120 prints_anyway ".[0].data_bytes > $(jq '.[0].data_bytes + 1048576' printed.json)" "${status[@]}"
}
