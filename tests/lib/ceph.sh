# shellcheck shell=bash
# A network of a test's own, in which there are a Ceph cluster of one machine and the gateway that docs/guide/ceph.md
# has, and the commands of that page.

cluster=$top/tests/ceph/cluster.sh

# Before a command: it runs there. Mounts and processes are everybody's.
in_network=(nsenter --net="/run/netns/rt-ceph-$$")

# ceph_network [OPTIONS of `cluster.sh start`]: the network, with the addresses of the page, the cluster, and its files
ceph_network() {
    local program
    [ "$(id -u)" = 0 ] || skip 'network namespaces need root'
    for program in ceph-mon ceph-osd rbd; do
        command -v $program >/dev/null || skip "no $program"
    done
    ip netns add "rt-ceph-$$" 2>/dev/null || skip 'no network namespaces here'
    trap ceph_network_gone EXIT
    ip -n "rt-ceph-$$" link set lo up
    ip -n "rt-ceph-$$" addr add 192.0.2.7/32 dev lo
    ip -n "rt-ceph-$$" addr add 192.0.2.8/32 dev lo
    "${in_network[@]}" "$cluster" start "$work/ceph" --auth cephx "$@" >cluster.log
    guide_files "$work/ceph"
}

# guide_files CLUSTER: what the page has in /etc/ceph, for a cluster in that folder, and `roadtrain` as a command
guide_files() {
    mkdir etc bin
    # shellcheck disable=SC2016
    sed "s|^keyring = .*|keyring = $work/etc/ceph.\$name.keyring|" "$1/ceph.conf" >etc/ceph.conf
    cp "$1/keyring" etc/ceph.client.admin.keyring
    export CEPH_CONF=$work/etc/ceph.conf
    ln -s "$ROADTRAIN" bin/roadtrain
    PATH=$work/bin:$PATH
}

ceph_network_gone() {
    "${in_network[@]}" "$cluster" stop "$work/ceph" >stop.log 2>&1 || true
    ip netns del "rt-ceph-$$"
}

# guide_serves COMMAND: starts a gateway; leaves the processes of all in $gateways. Each is on a machine of its own.
guide_serves() {
    local folder=$ROADTRAIN_RUNTIME_DIR log=target.log
    case $1 in *192.0.2.8*) folder=$work/second log=second.log ;; esac
    background $log "${in_network[@]}" env ROADTRAIN_RUNTIME_DIR="$folder" bash -c "exec $1"
    until_line $log '^ready' "$pid"
    gateways+=("$pid")
}

# guide_gateways_end: as they should, the one that stands by first, and without a complaint
guide_gateways_end() {
    local gateway n
    for ((n = ${#gateways[@]} - 1; n >= 0; n--)); do
        gateway=${gateways[n]}
        kill -TERM "$gateway"
        ended "$gateway" 15
        wait "$gateway" || fail "status $?"
    done
    # But for what the page says of it.
    ! grep -E 'WARN|ERROR' target.log second.log | grep -v 'object-map and fast-diff\|any host that reaches' || fail 'a gateway complains'
}

# guide_commands: those of docs/guide/ceph.md between its tables, one a line, as they stand there, but for places
guide_commands() {
    awk '/^## / {here = /^## (The|Snapshots|Larger)/} here && sub(/^    /, "") {
            while (sub(/\\$/, "")) {line = $0; getline; sub(/^ +/, ""); $0 = line $0}
            print
        } here && /^(With Linux|Or with Roadtrain)/ {print "# " $0}' "$top/docs/guide/ceph.md" | grep -v '^ready ' |
        sed "s|/etc/ceph/|$work/etc/|g"
}
