# shellcheck shell=bash
# Interfaces are not what they were when lanes were made: they have other addresses, or take smaller frames.
# `ether_lab` and its like are in test_10_ether.sh.

# One of them in each run: an interface that is made again.
thorough+=(ether_target_moves_to_another_interface ether_only_link_takes_smaller_frames
    ether_one_of_two_links_takes_smaller_frames ether_an_interface_comes_back_with_smaller_frames)

# of_host: jq's expression for the array of the host's lanes; a target's status lists those that it serves, too
of_host='[.. | .lanes? // empty | .[] | select(has("reconnects"))]'

# lanes_said FILTER: whether `status` says that of the array of the host's lanes
lanes_said() {
    "${host[@]}" "$ROADTRAIN" status --json >status.json
    jq -e "$of_host | length > 0 and ($1)" status.json >/dev/null
}

# links_said FILTER: whether `status` says that of the array of links
links_said() {
    "${host[@]}" "$ROADTRAIN" status --json >status.json
    jq -e "[.. | .links? // empty | .[]] | $1" status.json >/dev/null
}

# within SECONDS WHAT COMMAND...: waits until the command succeeds, as long as the load lives
within() {
    local end=$((SECONDS + $1 + 1))
    while ! "${@:3}"; do
        alive "$load" || { cat fio.log; fail "fio has ended: $2"; }
        [ $SECONDS -lt $end ] || { cat status.json attach.log target.log; fail "$2: not within $1 s"; }
        sleep 0.05
    done
}

# goes_on ROUND: lanes were reconnected so often, and carry requests; long before a timeout would show
# that a target is silent (30 s)
goes_on() {
    within 15 'connected again' lanes_said "all(.reconnects == $1)"
    local requests
    requests=$(jq "$of_host | map(.requests) | add + 1000" status.json)
    within 15 'requests go on' lanes_said "all(.reconnects == $1) and (map(.requests) | add) > $requests"
}

# uses_both: each of two links carries more than is of use to find out whether it does
uses_both() {
    local sent
    sent=$(jq '[.. | .links? // empty | .[].sent_frames] | max + 1000' status.json)
    within 15 'both links are used' links_said "length == 2 and all(.up and .sent_frames > $sent)"
}

# changing_lab LINKS: a lab through a switch, a target, a disk of it with two lanes, and a load that checks what it reads
changing_lab() {
    ether_lab "$1" 9000 1gbit
    serve_ether --namespace mem:64MiB --cores 0,1
    attach_ether "nbd:unix:$work/nbd.sock" --lanes 2 --keep-alive-tmo 30
    verified_load
    until_links "length == $1 and all(.up and .sent_frames > 500)"
}

# mtu END LINK BYTES
mtu() { ip -n "rt-$lab-$1" link set "lan$2" mtu "$3"; }

# another LINK MTU: the target's interface is made again, with an address that it never had
another() {
    ip -n "rt-$lab-t" link del "lan$1"
    ip -n "rt-$lab-m" link add "t$1" mtu 9000 type veth peer name "lan$1" mtu "$2" netns "rt-$lab-t"
    ip -n "rt-$lab-m" link set "t$1" master "bridge$1" up
    ip -n "rt-$lab-t" link set "lan$1" up
}

# The only interface of the target is made again, twice.
test_ether_only_port_of_the_target_is_another() {
    changing_lab 1
    local round
    for round in 1 2; do
        another 0 9000
        goes_on $round
    done
    verified_load_ends
}

# The target leaves the interface that lanes know, for one that comes then.
test_ether_target_moves_to_another_interface() {
    ether_lab 2 9000 1gbit
    switch_ether
    away_port_gone
    serve_ether --namespace mem:64MiB --cores 0,1
    links=lan0 attach_ether "nbd:unix:$work/nbd.sock" --lanes 2 --keep-alive-tmo 30
    verified_load
    until_links 'length == 1 and .[0].up and .[0].sent_frames > 500'
    ip -n "rt-$lab-t" link del lan0
    away_port
    goes_on 1
    verified_load_ends
}

# The MTU of the only link falls, at the host's end, then at the target's: a little, then by far.
test_ether_only_link_takes_smaller_frames() {
    changing_lab 1
    mtu h 0 8000
    goes_on 1
    mtu t 0 7000
    goes_on 2
    mtu h 0 1500
    goes_on 3
    mtu t 0 1400
    goes_on 4
    verified_load_ends
}

# Of two links one falls, at either end: it is used again.
test_ether_one_of_two_links_takes_smaller_frames() {
    changing_lab 2
    local round=0 end
    for end in h t; do
        mtu $end $round 1500
        goes_on $((++round))
        uses_both
    done
    lanes_said "all(.reconnects == $round)" || { cat status.json; fail 'connected again without need'; }
    verified_load_ends
}

# One of two is made again, and takes smaller frames than it did: its link cannot move there.
test_ether_an_interface_comes_back_with_smaller_frames() {
    changing_lab 2
    another 1 1500
    goes_on 1
    uses_both
    verified_load_ends
}
