# shellcheck shell=bash
# Two gateways to one image of the shared cluster, and a host that knows both. The cluster, gateway `two` and the host are in
# the network of the run; gateway `one` is in another, with a cable to the cluster and one to hosts.

other=rt-other-$$
in_other=(nsenter "--net=/run/netns/$other")

gateways_gone() {
    local process cable
    for process in ${gateway_one-} ${gateway_two-}; do kill -CONT "$process" 2>/dev/null || true; done
    for cable in storage hosts; do ip link del $cable || true; done
    ip netns del "$other"
}

# gateways_lab: the other network and an image on the cluster, with Ceph's own pace. $image ends a namespace.
gateways_lab() {
    local cable
    need_own_network
    ip netns add "$other" 2>/dev/null || skip 'no network namespaces here'
    trap gateways_gone EXIT
    ceph_lab
    # Addresses stay when a cable is cut.
    ip -n "$other" link set lo up
    ip -n "$other" addr add 192.0.2.2/32 dev lo
    ip -n "$other" addr add 192.0.2.3/32 dev lo
    for cable in storage hosts; do
        ip link add $cable type veth peer name $cable netns "$other"
        ip link set $cable up
        ip -n "$other" link set $cable up
    done
    # By `storage` the cluster at 192.0.2.1 and the gateway at 192.0.2.2 reach each other, by `hosts` hosts at 192.0.2.9
    # and the gateway at 192.0.2.3.
    ip route add 192.0.2.2 dev storage src 192.0.2.1
    ip route add 192.0.2.3 dev hosts src 192.0.2.9
    ip -n "$other" route add 192.0.2.1 dev storage src 192.0.2.2
    ip -n "$other" route add 192.0.2.9 dev hosts src 192.0.2.3
    # Ceph's default: a change to the map waits for a second.
    ceph_tool tell mon.a config set paxos_propose_interval 1
    rbd_tool create rbd/disk --size 64M
    port=$(free_port) nqn=nqn.2026-11.test:gateways
}

# gateway one|two [NAMESPACE...]: starts it; leaves its process in $gateway_one or $gateway_two
gateway() {
    local name=$1 network=() address=192.0.2.1 range=1-1000 namespaces=() namespace
    shift
    [ "$name" = two ] || network=("${in_other[@]}") address=192.0.2.3 range=1001-2000
    for namespace in "${@:-rbd:rbd/disk,$image,standby}"; do namespaces+=(--namespace "$namespace"); done
    [ ! -e "$name.log" ] || mv "$name.log" "$name.$RANDOM.log"
    background "$name.log" "${network[@]}" env ROADTRAIN_RUNTIME_DIR="$work/$name" "$ROADTRAIN" serve -a $address \
        -s "$port" -n "$nqn" --serial D1 --cntlid-range $range "${namespaces[@]}"
    until_line "$name.log" '^ready' "$pid" 60
    declare -g "gateway_$name=$pid"
}

# ana_of NAME [INDEX]: the state of its namespace
ana_of() {
    env ROADTRAIN_RUNTIME_DIR="$work/$1" "$ROADTRAIN" status --json |
        jq -r ".[0].subsystems[0].namespaces[${2:-0}].ana"
}

# is_soon NAME STATE [SECONDS]: its namespace has that state
is_soon() {
    local n
    for ((n = 0; n < ${3:-60} * 20; n++)); do
        [ "$(ana_of "$1")" != "$2" ] || return 0
        sleep 0.05
    done
    tail -n 30 one.log two.log
    fail "$1 is $(ana_of "$1"), not $2"
}

# host NAME ADDRESS...: attaches by these; $uri leads to the disk. $patience: seconds until it gives a connection up
host() {
    local name=$1 paths=() address
    shift
    for address; do paths+=(-a "$address:$port"); done
    uri="nbd+unix:///?socket=$work/$name.sock"
    background "$name.log" env ROADTRAIN_RUNTIME_DIR="$work/$name.run" "$ROADTRAIN" attach -t tcp \
        "${paths[@]}" -n "$nqn" --as "nbd:unix:$work/$name.sock" --keep-alive-tmo "${patience-1}" --reconnect-delay 1
    until_line "$name.log" '^ready' "$pid" 60
}

cut_storage() { ip link set storage down; }

mend_storage() {
    ip link set storage up
    ip route add 192.0.2.2 dev storage src 192.0.2.1
}
