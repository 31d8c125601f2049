# shellcheck shell=bash
# Ethernet links between two network namespaces, for tests and measurements:
#
#   links_make NAME COUNT MTU [RATE]   COUNT (1 to 6) links lan0.. between the namespaces rt-NAME-h (host) and
#                                      rt-NAME-t (target); IP addresses 10.77.N.1 and 10.77.N.2
#   in_host NAME CMD... | in_target NAME CMD...
#   links_shape NAME LINK h|t CMD...   replaces the queueing of what leaves a shaped link at its host's or target's end
#   links_cut NAME LINK [h|t] | links_mend NAME LINK [h|t]   at the target's end unless said; through a bridge the
#                                      other end keeps its carrier, as behind a switch
#   links_remove NAME
#
# With a RATE (1gbit) each link goes through a bridge in a third namespace, rt-NAME-m, and is shaped there, in both
# directions: an end that bypasses the queueing of its own interface is shaped all the same. Rates are those of the wire:
# a frame costs 24 bytes (preamble, checksum, gap) more than it has.
#
# A namespace ends with its last process and its name, and takes its links along.

# What a shaped link holds before it drops, and lets through at once.
LINKS_QUEUE=${LINKS_QUEUE:-512k}
LINKS_BURST_BYTES=${LINKS_BURST_BYTES:-32768}

in_host() { ip netns exec "rt-$1-h" "${@:2}"; }
in_target() { ip netns exec "rt-$1-t" "${@:2}"; }

# links_possible: whether this machine allows them; says why not
links_possible() {
    [ "$(id -u)" = 0 ] || { echo "network namespaces need root"; return 1; }
    local probe=rt-probe-$$
    ip netns add "$probe" 2>/dev/null || { echo "no network namespaces here"; return 1; }
    local possible=0
    ip -n "$probe" link add lan0 type veth peer name lan1 2>/dev/null || possible=1
    ip netns del "$probe"
    [ $possible = 0 ] || echo "no veth pairs here"
    return $possible
}

links_make() {
    local name=$1 count=$2 mtu=$3 rate=${4:-} side link
    for side in h t ${rate:+m}; do
        ip netns add "rt-$name-$side" || return
        # Router solicitations are no traffic of ours.
        ip netns exec "rt-$name-$side" sysctl -qw net.ipv6.conf.default.disable_ipv6=1
    done
    for ((link = 0; link < count; link++)); do
        if [ -n "$rate" ]; then
            _link_shaped "$name" "$link" "$mtu" "$rate" || return
        else
            ip -n "rt-$name-h" link add "lan$link" mtu "$mtu" type veth \
                peer name "lan$link" mtu "$mtu" netns "rt-$name-t" || return
        fi
        ip -n "rt-$name-h" addr add "10.77.$link.1/24" dev "lan$link" || return
        ip -n "rt-$name-t" addr add "10.77.$link.2/24" dev "lan$link" || return
        ip -n "rt-$name-h" link set "lan$link" up || return
        ip -n "rt-$name-t" link set "lan$link" up || return
    done
}

_link_shaped() {
    local name=$1 link=$2 mtu=$3 rate=$4 side
    ip -n "rt-$name-m" link add "bridge$link" type bridge || return
    for side in h t; do
        ip -n "rt-$name-m" link add "$side$link" mtu "$mtu" type veth \
            peer name "lan$link" mtu "$mtu" netns "rt-$name-$side" || return
        # Frames of TCP go one by one, as through a real interface of that rate.
        ip -n "rt-$name-$side" link set "lan$link" gso_max_segs 1 || return
        ip -n "rt-$name-m" link set "$side$link" master "bridge$link" || return
        links_shape "$name" "$link" "$side" tbf rate "$rate" overhead 24 limit "$LINKS_QUEUE" \
            burst $((LINKS_BURST_BYTES > 2 * mtu ? LINKS_BURST_BYTES : 2 * mtu)) || return
        ip -n "rt-$name-m" link set "$side$link" up || return
    done
    ip -n "rt-$name-m" link set "bridge$link" mtu "$mtu" up
}

links_shape() { tc -n "rt-$1-m" qdisc replace dev "$3$2" root "${@:4}"; }

links_cut() { ip -n "rt-$1-${3:-t}" link set "lan$2" down; }
links_mend() { ip -n "rt-$1-${3:-t}" link set "lan$2" up; }

links_remove() {
    local side
    for side in h t m; do
        [ ! -e "/run/netns/rt-$1-$side" ] || ip netns del "rt-$1-$side"
    done
}
