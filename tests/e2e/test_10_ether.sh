# shellcheck shell=bash
# Storage straight on Ethernet, between two network namespaces with one or two links.

# shellcheck source=../lib/links.sh
. "$top/tests/lib/links.sh"

# ether_lab LINKS MTU [RATE]: a lab of its own for this test; $lab names it, $links its interfaces
ether_lab() {
    local why
    why=$(links_possible) || skip "$why"
    lab="x$BASHPID"
    links=$(seq -s, -f 'lan%g' 0 $(($1 - 1)))
    # Not functions: what is started so is the program itself, to be killed.
    host=(ip netns exec "rt-$lab-h") away=(ip netns exec "rt-$lab-t")
    trap 'links_remove "$lab"' EXIT
    links_make "$lab" "$@"
}

# serve_ether [OPTIONS]: a target at all links; leaves its process in $target
serve_ether() {
    nqn=${nqn:-nqn.2026-11.test:ether}
    background "$work/target.log" "${away[@]}" "$ROADTRAIN" serve -t ether -a "$links" -n "$nqn" "$@"
    target=$pid
    until_line "$work/target.log" '^ready' "$target"
}

# bench_ether [OPTIONS]: a verified load over all links; what it says is in bench.json
bench_ether() {
    in_host "$lab" "$ROADTRAIN" bench -t ether -a "$links" -n "$nqn" --verify --size 8MiB --json "$@" \
        >bench.json 2>bench.log || { cat bench.log; fail 'bench saw errors'; }
    holds bench.json '.errors == 0 and .iops > 0'
}

# attach_ether FRONT [OPTIONS]: a local disk over all links
attach_ether() {
    background "$work/attach.log" "${host[@]}" "$ROADTRAIN" attach -t ether -a "$links" -n "$nqn" \
        --as "$@"
    attached=$pid
    until_line "$work/attach.log" '^ready' "$attached"
}

# killed_and_back [OPTIONS]: the target dies and is started again
killed_and_back() {
    kill -KILL "$target"
    ended "$target" 60
    serve_ether "$@"
}

test_ether_finds_its_target() {
    ether_lab 2 9000
    serve_ether --namespace mem:64MiB
    eventually 20 is_offered
}

# One discovery listens for a third of a second.
is_offered() { in_host "$lab" "$ROADTRAIN" discover -t ether -a "$links" >discover.log && grep -q "$nqn" discover.log; }

test_ether_verified_over_one_link() {
    local mtu
    for mtu in 1500 9000 65535; do
        ether_lab 1 $mtu
        serve_ether --namespace mem:64MiB --namespace "file:$work/disk.img,size=64MiB"
        bench_ether --rw randrw --bs 4k --depth 32 --lanes 2 --ios 8000
        bench_ether --rw randrw --bs 128k --depth 8 --ios 800
        kill "$target"
        ended "$target" 60
        links_remove "$lab"
    done
}

test_ether_verified_over_two_links() {
    ether_lab 2 9000
    in_target "$lab" ip link set lo up
    serve_ether --namespace mem:64MiB --cores 0,1 --metrics 127.0.0.1:9464
    bench_ether --rw randrw --bs 4k --depth 64 --lanes 2 --ios 30000
    bench_ether --rw randrw --bs 64k --depth 16 --ios 800
    in_target "$lab" curl -sS http://127.0.0.1:9464/metrics >metrics.txt
    local link direction
    for link in lan0 lan1; do
        for direction in sent received; do
            awk -v "name=roadtrain_frames_${direction}_total{interface=\"$link\"}" '$1 == name && $2 > 1000 {found = 1}
                END {exit !found}' metrics.txt || { grep frames metrics.txt; fail "no frames $direction over $link"; }
        done
        grep -q "^roadtrain_frames_lost_total{interface=\"$link\"} " metrics.txt
    done
}

# Tagged frames; a host with another tag, or none, receives nothing from the target.
test_ether_in_a_vlan() {
    ether_lab 1 9000
    serve_ether --vlan 7 --namespace mem:64MiB
    bench_ether --vlan 7 --rw randrw --bs 4k --depth 16 --ios 8000
    local tag
    for tag in '' '--vlan 8'; do
        # shellcheck disable=SC2086
        in_host "$lab" "$ROADTRAIN" discover -t ether -a "$links" $tag >discover.log 2>&1 || true
        ! grep -q "$nqn" discover.log || { cat discover.log; fail "found with ${tag:-no tag}"; }
    done
}

test_ether_over_af_xdp() {
    grep -q '^XDP ' /proc/net/protocols || skip 'this kernel has no AF_XDP'
    ether_lab 2 1500
    (umask 077; "$ROADTRAIN" keys dhchap >host.key)
    serve_ether --port-kind xdp --namespace mem:64MiB --dhchap-key "$ether_hostnqn=host.key"
    bench_ether --port-kind xdp --rw randrw --bs 4k --depth 16 --ios 8000
    bench_ether --port-kind xdp -q "$ether_hostnqn" --dhchap-secret host.key --seal required --rw randrw \
        --bs 4k --depth 16 --ios 8000
    bench_ether --port-kind packet --rw randrw --bs 64k --depth 4 --ios 800
}

test_ether_files_under_nbd() {
    ether_lab 2 9000
    serve_ether --namespace "file:$work/disk.img,size=64MiB"
    attach_ether "nbd:unix:$work/nbd.sock"
    fio --name=nbd --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd.sock" --rw=randrw --size=64M \
        --bssplit=512/20:4k/40:7k/20:256k/20 --iodepth=16 --verify=crc32c --verify_fatal=1 --time_based \
        --runtime=2 --fsync=64 --eta=never >fio.log 2>&1 || { cat fio.log; fail 'fio is not content'; }
}

test_ether_under_fuse() {
    [ -e /dev/fuse ] || skip 'no /dev/fuse'
    ether_lab 1 9000
    serve_ether --namespace mem:64MiB
    mkdir mnt
    attach_ether "fuse:$work/mnt"
    local file
    file=$(sed -n 's/^ready \([^ ]*\).*/\1/p' attach.log)
    fio --name=fuse --filename="$file" --ioengine=psync --direct=1 --rw=randrw --bs=4k --size=32M \
        --verify=crc32c --verify_fatal=1 --eta=never >fio.log 2>&1 || { cat fio.log; fail 'fio is not content'; }
    kill "$attached"
    ended "$attached" 10
}

# ether_bench_ends: the load of process $load goes on, and has seen no error
ether_bench_ends() {
    moves_data
    kill -INT "$load"
    wait "$load" || { cat bench.log; fail 'bench saw errors'; }
}

# Killed three times under load: acknowledged writes survive, and nothing fails. Over Ethernet a target does not announce its
# place, so writes that were sent to the one before wait for three keep-alive timeouts.
test_ether_target_killed_and_back() {
    ether_lab 2 9000
    serve_ether --namespace "file:$work/disk.img,size=64MiB"
    background bench.log "${host[@]}" "$ROADTRAIN" bench -t ether -a "$links" -n "$nqn" --rw randrw --bs 4k \
        --depth 32 --lanes 2 --seconds 600 --size 8MiB --reconnect-delay 0.2 --keep-alive-tmo 1 --verify --json
    local load=$pid n
    for n in 1 2 3; do
        moves_data
        alive "$load" || { cat bench.log; fail "bench ended before crash $n"; }
        killed_and_back --namespace "file:$work/disk.img,size=64MiB"
    done
    ether_bench_ends
}

# A host that vanishes leaves nothing; the next one is served meanwhile.
test_ether_host_killed() {
    ether_lab 1 9000
    serve_ether --namespace mem:64MiB
    attach_ether "nbd:unix:$work/nbd.sock" --keep-alive-tmo 1
    kill -KILL "$attached"
    bench_ether --rw randrw --bs 4k --depth 8 --ios 8000
    until_line "$work/target.log" 'queue closed.*KeepAlive' "$target" 30
}

# One of two links is cut under load, then the other one.
test_ether_links_cut_and_mended() {
    ether_lab 2 9000
    serve_ether --namespace mem:64MiB
    background bench.log "${host[@]}" "$ROADTRAIN" bench -t ether -a "$links" -n "$nqn" --rw randrw --bs 4k \
        --depth 32 --lanes 2 --seconds 600 --size 8MiB --verify --json
    local load=$pid link
    for link in 0 1 0; do
        moves_data
        links_cut "$lab" $link
        sleep 0.5  # so long it is dark
        moves_data
        links_mend "$lab" $link
        alive "$load" || { cat bench.log; fail 'bench ended while a link was cut'; }
    done
    ether_bench_ends
}

# switch_ether: all links of the lab, which has a rate, lead to one switch
switch_ether() {
    ip -n "rt-$lab-m" link set h1 master bridge0
    ip -n "rt-$lab-m" link set t1 master bridge0
}

# away_port: the target's second interface, with an address that it never had; away_port_gone: none
away_port() {
    ip -n "rt-$lab-m" link add t1 mtu 9000 type veth peer name lan1 mtu 9000 netns "rt-$lab-t"
    ip -n "rt-$lab-m" link set t1 master bridge0 up
    ip -n "rt-$lab-t" link set lan1 up
}
away_port_gone() { ip -n "rt-$lab-t" link del lan1; }

# until_links FILTER: waits until `status` says that of the links, and that nothing was connected again
until_links() {
    local end=$((SECONDS + 120))
    while [ $SECONDS -lt $end ]; do
        sleep 0.05
        "${host[@]}" "$ROADTRAIN" status --json >status.json || continue  # now and then it takes too long
        holds status.json 'all(.. | .reconnects? // 0; . == 0)'
        ! jq -e "[.. | .links? // empty | .[]] | $1" status.json >/dev/null || return 0
    done
    cat status.json attach.log target.log
    fail "never so: $1"
}

# until_used FILTER: waits until there are two links and the one that the filter selects carries more than it did
until_used() {
    until_links 'length == 2 and all(.up)'
    local sent
    sent=$(jq "[.. | .links? // empty | .[] | select($1) | .sent_frames] | add + 1000" status.json)
    until_links "length == 2 and all(.up) and any($1 and .sent_frames > $sent)"
}

# verified_load: keeps links busy, and checks what it reads, until verified_load_ends; its process is in $load
verified_load() {
    background fio.log fio --name=nbd --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd.sock" --rw=randrw --size=64M \
        --bssplit=4k/60:64k/40 --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_backlog=512 --time_based \
        --runtime=600 --eta=never
    load=$pid
}

verified_load_ends() {
    kill -INT "$load"
    wait "$load" || [ $? = 128 ] || { cat fio.log; fail 'fio is not content'; }
    grep -q 'err= 0' fio.log || { cat fio.log; fail 'fio saw errors'; }
}

# The target has two interfaces at a switch, the host one. The second one is missing at first, then comes, goes, and
# comes with other addresses, under load: lanes use what is there, and nothing is connected again.
thorough+=(ether_port_of_the_target_comes_later)
test_ether_port_of_the_target_comes_later() {
    ether_lab 2 9000 300mbit  # one link is too slow for the load
    switch_ether
    away_port_gone
    serve_ether --namespace mem:64MiB --cores 0,1
    grep -q 'lan1: no such interface yet' target.log || { cat target.log; fail 'no warning'; }
    # A time without keep-alives on a full link must not count as an absent target.
    links=lan0 attach_ether "nbd:unix:$work/nbd.sock" --lanes 2 --keep-alive-tmo 30
    verified_load
    local round first
    until_links 'length == 1 and .[0].up and .[0].sent_frames > 1000'
    first=$(jq '[.. | .links? // empty | .[].peer][0]' status.json)
    for round in 1 2 3; do
        away_port
        until_used ".peer != $first"
        away_port_gone
        until_links 'any(.up | not)'
        alive "$load" || { cat fio.log; fail "fio has ended in round $round"; }
    done
    verified_load_ends
}

# The same at the host, which has a link of its own to each interface of the target, with sealed frames: it is these
# that say where the host is.
test_ether_port_of_the_host_comes_later() {
    ether_lab 2 9000 300mbit
    (umask 077; "$ROADTRAIN" keys dhchap >host.key)
    serve_ether --namespace mem:64MiB --dhchap-key "$ether_hostnqn=host.key"
    ip -n "rt-$lab-h" link del lan1
    attach_ether "nbd:unix:$work/nbd.sock" --lanes 2 --keep-alive-tmo 30 -q "$ether_hostnqn" --dhchap-secret host.key \
        --seal required
    verified_load
    local round
    until_links 'length == 1 and .[0].up and .[0].sent_frames > 1000'
    for round in 1 2; do
        ip -n "rt-$lab-m" link add h1 mtu 9000 type veth peer name lan1 mtu 9000 netns "rt-$lab-h"
        ip -n "rt-$lab-m" link set h1 master bridge1 up
        ip -n "rt-$lab-h" link set lan1 up
        until_used '.interface == "lan1"'
        ip -n "rt-$lab-h" link del lan1
        until_links 'any(.up | not)'
        alive "$load" || { cat fio.log; fail "fio has ended in round $round"; }
    done
    verified_load_ends
}

# The only link is away for a while.
test_ether_only_link_cut_and_mended() {
    ether_lab 1 1500
    serve_ether --namespace mem:64MiB
    background bench.log "${host[@]}" "$ROADTRAIN" bench -t ether -a "$links" -n "$nqn" --rw randrw --bs 4k \
        --depth 32 --seconds 600 --size 8MiB --verify --json --reconnect-delay 0.2
    local load=$pid
    moves_data
    links_cut "$lab" 0
    sleep 1  # so long it is dark
    links_mend "$lab" 0
    ether_bench_ends
}

# A hostile peer at both ends: changes nothing, stops nothing, and costs no memory. With data digests: a changed copy of a
# frame that was lost has the right header, and only digests or sealing find it out.
thorough+=(ether_hostile_frames) # under load a lane may stall for longer than bench waits at its end
test_ether_hostile_frames() {
    ether_lab 1 9000
    serve_ether --namespace mem:64MiB
    background bench.log "${host[@]}" "$ROADTRAIN" bench -t ether -a "$links" -n "$nqn" --rw randrw --bs 4k \
        --depth 16 --seconds 600 --size 8MiB --ddgst --verify --json
    local load=$pid before after
    moves_data
    before=$(awk '/^VmRSS/ {print $2}' "/proc/$target/status")
    background hostile-1.log "${host[@]}" "$EXERCISE" frames lan0 --seconds 1 --frames 20000 --seed 1
    local hostile=$pid
    background hostile-2.log "${away[@]}" "$EXERCISE" frames lan0 --seconds 1 --frames 20000 --seed 2
    wait "$hostile" || fail 'the host has sent nothing hostile'
    wait "$pid" || fail 'the target has sent nothing hostile'
    # Frames that sockets had no room for are sent again, after a while.
    moves_data
    moves_data
    ether_bench_ends
    after=$(awk '/^VmRSS/ {print $2}' "/proc/$target/status")
    [ "$after" -lt $((before + 100000)) ] || fail "the target has grown from $before to $after KiB"
    bench_ether --rw randrw --bs 4k --depth 16 --ios 8000
}

# Ethernet and TCP at once, of the same namespaces.
test_ether_beside_tcp() {
    ether_lab 1 9000
    port=4420
    serve_ether -a tcp:10.77.0.2 -s $port --namespace mem:64MiB
    background tcp.json "${host[@]}" "$ROADTRAIN" bench -t tcp -a 10.77.0.2 -s $port -n "$nqn" --verify --rw randrw \
        --bs 4k --depth 16 --seconds 600 --json
    local tcp=$pid
    moves_data
    in_host "$lab" "$ROADTRAIN" bench -t ether -a "$links" -n "$nqn" --rw randread --bs 4k --depth 16 --ios 20000 \
        --json >bench.json
    kill -INT "$tcp"
    wait "$tcp" || { cat tcp.json; fail 'bench over TCP saw errors'; }
    holds bench.json '.errors == 0 and .iops > 0'
    holds tcp.json '.errors == 0 and .iops > 0'
}

# foreign_host PROGRAM [OPTIONS]: a host that was written from the page alone, over all links; what it says is in foreign.log
foreign_host() {
    in_host "$lab" timeout 120 python3 -B "$top/tests/foreign-hosts/ether/$1" "$links" "$nqn" "${@:2}" >foreign.log 2>&1 ||
        { cat foreign.log; fail "$*"; }
}

# It finds what it has written, whatever the network does to frames.
test_ether_foreign_host() {
    ether_lab 2 9000
    serve_ether --namespace mem:64MiB
    foreign_host host.py
    foreign_host host.py --crc --drop 0.05 --dup 0.05 --reorder 0.05 --seed "$((RANDOM + 1))"
    tail -n 1 foreign.log | grep -qx ok
}

# The same with keys, over frames that are sealed.
test_ether_foreign_host_sealed() {
    ether_lab 1 9000
    (umask 077; "$ROADTRAIN" keys dhchap >host.key)
    serve_ether --namespace mem:64MiB --require-auth --dhchap-key "$ether_hostnqn=host.key" --seal required
    foreign_host seal.py "$ether_hostnqn" host.key
    foreign_host seal.py "$ether_hostnqn" host.key --drop 0.03 --dup 0.03 --reorder 0.03
    grep -q 'authenticated; frames are sealed' target.log
}

# What is acknowledged is answered, or ends the lane with a reason; metrics and the log have the reasons.
test_ether_foreign_host_at_the_limits() {
    ether_lab 1 9000
    in_target "$lab" ip link set lo up
    serve_ether --namespace mem:64MiB --metrics 127.0.0.1:9464
    foreign_host limits.py
    in_target "$lab" curl -sS http://127.0.0.1:9464/metrics >metrics.txt
    local reason
    for reason in places shapes unexpected slots records; do
        grep -q "^roadtrain_frames_dropped_total{interface=\"all\",reason=\"$reason\"} [1-9]" metrics.txt ||
            { grep frames_dropped metrics.txt; fail "$reason is not counted"; }
        grep -q "breaks the protocol ($reason)" target.log || { cat target.log; fail "$reason is not in the log"; }
    done
    foreign_host host.py
}
