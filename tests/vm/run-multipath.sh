# shellcheck shell=bash
# The kernel's multipath to our target, under a file system with load on it.

for name in kernel_host_multipath kernel_host_two_processes; do
    thorough+=("$name")
    group_of[$name]=${RT_VM_KERNEL:-stable}
done

# fault NAME COMMAND...: runs it when the guest requests that fault
fault() {
    until_file "share/$1" "$vm"
    "${@:2}"
    touch "share/$1.done"
}

# Two listeners: ANA changes, a black hole, reset connections, a target that is killed. No error, nothing lost.
test_kernel_host_multipath() {
    needs_taps
    share
    port=4420 nqn=nqn.2026-11.test:paths
    cp "$here/guest-load.sh" share/load.sh
    ip addr add 10.0.2.3/32 dev br0
    trap 'ip addr del 10.0.2.3/32 dev br0 2>/dev/null || true' EXIT
    serve_two_listeners
    background guest.log guest "$here/guest-paths.sh"
    local vm=$pid
    fault change ana inaccessible
    fault back ana optimized
    fault black-hole ip addr del 10.0.2.3/32 dev br0
    fault mended ip addr add 10.0.2.3/32 dev br0
    fault cut cut_connections
    fault killed restart
    guest_ends "$vm"
}
serve_two_listeners() {
    serve -a 10.0.2.3 --ana 10.0.2.2=non-optimized --namespace "file:$work/disk.img,size=128MiB"
}
ana() { ROADTRAIN_RUNTIME_DIR=$work/served "$ROADTRAIN" ctl listener set -a "10.0.2.3:$port" --ana "$1"; }
# The target logs for each qpair that its connection is lost or, after another loss of the controller, that it has closed
# it.
lost_connections() { grep -Ec 'queue closed|connection lost' target.log || true; }
# has_lost_more_than COUNT
has_lost_more_than() { [ "$(lost_connections)" -gt "$1" ]; }
cut_connections() { # resets those to the first address, and waits until the target has lost them
    local before
    before=$(lost_connections)
    ss --no-header --kill --tcp state established src "10.0.2.3:$port"
    eventually 60 has_lost_more_than "$before"
}
restart() {
    kill -KILL "$target"
    ended "$target" 60
    serve_two_listeners
}

# Two target processes and one disk: each is killed in its turn, and comes back to stand by.
test_kernel_host_two_processes() {
    needs_taps
    share
    nqn=nqn.2026-11.test:processes
    local one two
    truncate -s 128M disk.img
    start_one
    start_two
    cp "$here/guest-load.sh" share/load.sh
    background guest.log guest "$here/guest-processes.sh"
    local vm=$pid
    fault one-died die one
    fault one-stands-by start_one
    fault two-died die two
    fault two-stands-by start_two
    fault one-departs kill "$one"
    guest_ends "$vm"
}
# standby NAME PORT CNTLIDS: leaves its process in $pid
standby() {
    background "$1.log" env ROADTRAIN_RUNTIME_DIR="$work/$1" "$ROADTRAIN" serve -a 10.0.2.2 -s "$2" -n "$nqn" \
        --cntlid-range "$3" --namespace "file:$work/disk.img,standby"
    until_line "$1.log" '^ready' "$pid"
}
start_one() { standby one 4420 1-1000; one=$pid; }
start_two() { standby two 4421 1001-2000; two=$pid; }
die() { # die one|two
    kill -KILL "${!1}"
    ended "${!1}" 60
}
