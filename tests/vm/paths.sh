#!/bin/bash
# What test_kernel_host_multipath runs in the network namespace of its guest: the target with two addresses, and the
# faults that the guest asks for (guest-paths.sh). Wants $here, $work and $ROADTRAIN; works in $PWD.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$here/asked.sh"

port=4420 nqn=nqn.2026-11.test:paths
export ROADTRAIN_RUNTIME_DIR=$work/served

serve() {
    : >target.log # now: nobody may read what the one before said
    "$ROADTRAIN" serve -a 10.0.2.2 -a 10.0.2.3 -s $port -n $nqn --ana 10.0.2.2=non-optimized \
        --namespace "file:$work/disk.img,size=128MiB" >target.log 2>&1 &
    target=$!
    for _ in $(seq 200); do ! grep -q '^ready' target.log || return 0; sleep 0.1; done
    cat target.log
    return 1
}
ana() { "$ROADTRAIN" ctl ana --listener "10.0.2.3:$port" "$1"; }
# The target says of each queue that its connection is lost, or, if it heard that of another one of the controller
# first, that it has closed it.
ended() { grep -Ec 'queue closed|connection lost' target.log || true; }
cut_connections() { # resets those to the first address, and waits until the target has lost them
    local before
    before=$(ended)
    ss --no-header --kill --tcp state established src "10.0.2.3:$port"
    for _ in $(seq 100); do
        [ "$(ended)" -le "$before" ] || return 0
        sleep 0.1
    done
    echo 'no connection was cut'
    return 1
}
restart() {
    kill -KILL $target
    wait $target || true
    sleep 1
    serve
}

ip addr add 10.0.2.3/32 dev br0
serve
cp "$here/guest-load.sh" share/load.sh
"$here/vm.sh" run -n 0 -e PORT=$port -e NQN=$nqn -s "$PWD/share" "$here/guest-paths.sh" &
vm=$!
trap 'kill $target $vm 2>/dev/null || true' EXIT
asked change ana inaccessible
asked back ana optimized
asked black-hole ip addr del 10.0.2.3/32 dev br0
asked mended ip addr add 10.0.2.3/32 dev br0
asked cut cut_connections
asked killed restart
wait $vm
