# shellcheck shell=bash
# Runs in a guest with two nodes, processors 0-1 and 2-3, and eth1 on node 1: where do threads and memory go?
set -eu

nqn=nqn.2024-01.test:numa
roadtrain() { LD_LIBRARY_PATH=/share/lib /share/roadtrain "$@"; }

# pages PID POLICY NODE: pages on the node, of the mappings with the policy
pages() {
    awk -v policy="$2" -v node="N$3" '$2 == policy {
        for (i = 3; i <= NF; i++) if (split($i, part, "=") == 2 && part[1] == node) sum += part[2]
    } END { print sum + 0 }' "/proc/$1/numa_maps"
}

# cores PID: where its reactors may run
cores() {
    local task
    for task in "/proc/$1/task"/*; do
        ! grep -qE '^roadtrain-([0-9]|h|targe)' "$task/comm" || sed -n 's/^Cpus_allowed_list:\t//p' "$task/status"
    done | grep -v ctl | sort -u
}

# expect WHAT ACTUAL WANTED
expect() {
    echo "$1: $2"
    [ "$2" = "$3" ] || { echo "FAILED: $1 is '$2', not '$3'"; exit 1; }
}

# await SECONDS COMMAND...
await() {
    local n
    for ((n = 0; n < $1 * 10; n++)); do if "${@:2}"; then return 0; fi; sleep 0.1; done
    echo "never: ${*:2}"
    return 1
}

# has_pages PID NODE: many that are bound to the node are there
has_pages() { [ "$(pages "$1" "prefer:$2" "$2")" -gt 500 ]; }

# on_node WHO PID NODE: what it has bound is there and nowhere else
on_node() {
    local here there
    await 60 has_pages "$2" "$3"
    here=$(pages "$2" "prefer:$3" "$3") there=$(pages "$2" "prefer:$3" $((1 - $3)))
    echo "$1: $here pages of memory bound to node $3 are there, $there on the other"
    expect "$1: pages elsewhere" "$there" 0
}

# serve [OPTIONS]: leaves its process in $target
serve() {
    : >/tmp/target.log # now: nobody may read what the one before said
    LD_LIBRARY_PATH=/share/lib /share/roadtrain serve -a 10.0.3.15 -n $nqn --namespace mem:64MiB "$@" \
        >/tmp/target.log 2>&1 &
    target=$!
    until grep -q '^ready' /tmp/target.log; do
        [ -e /proc/$target ] || { cat /tmp/target.log; exit 1; }
        sleep 0.1
    done
}

# carried: bytes that were sent here from one end to the other
carried() { cat /sys/class/net/lo/statistics/tx_bytes; }
has_carried() { [ "$(carried)" -gt "$1" ]; }

# load [OPTIONS]: writes until load_ends, and has begun to; leaves its process in $host
load() {
    local enough
    enough=$(($(carried) + (16 << 20)))
    LD_LIBRARY_PATH=/share/lib /share/roadtrain bench -a 10.0.3.15 -n $nqn --rw randwrite --bs 64k --depth 32 \
        --seconds 600 --json "$@" >/tmp/bench.json &
    host=$!
    await 60 has_carried $enough
}

load_ends() {
    kill -INT $host
    wait $host
}

expect 'node of eth1' "$(cat /sys/class/net/eth1/device/../numa_node)" 1
ip addr add 10.0.3.15/24 dev eth1
ip link set eth1 up

serve
grep reactor /tmp/target.log
load
expect 'full: cores of the target' "$(cores $target)" 2-3
expect 'full: cores of the host' "$(cores $host)" 2-3
on_node 'full: target' $target 1
on_node 'full: host' $host 1
load_ends
grep -q 'cores 2-3, memory of node 1' /tmp/bench.json

load --cores 0
expect 'full, --cores 0: cores of the host' "$(cores $host)" 0
on_node 'full, --cores 0: host' $host 0
load_ends

load --placement buffers
expect 'buffers: cores of the host' "$(cores $host)" 0-3
on_node 'buffers: host' $host 1
load_ends
kill $target
wait $target

serve --placement none
load --placement none
expect 'none: cores of the target' "$(cores $target)" 0-3
expect 'none: bound pages of the target' "$(grep -c prefer /proc/$target/numa_maps)" 0
expect 'none: bound pages of the host' "$(grep -c prefer /proc/$host/numa_maps)" 0
load_ends
kill $target
wait $target
