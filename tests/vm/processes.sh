#!/bin/bash
# What test_kernel_host_two_processes runs in the network namespace of its guest: two target processes with one file, of
# which one stands by, and their deaths, for which the guest asks (guest-processes.sh). Wants $here, $work and $ROADTRAIN;
# works in $PWD.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$here/asked.sh"

nqn=nqn.2026-11.test:processes

# serve NAME PORT CNTLIDS: leaves its process in $target
serve() {
    : >"$1.log" # now: nobody may read what the one before said
    ROADTRAIN_RUNTIME_DIR=$work/$1 "$ROADTRAIN" serve -a 10.0.2.2 -s "$2" -n $nqn --cntlid-range "$3" \
        --namespace "file:$work/disk.img,standby" >"$1.log" 2>&1 &
    target=$!
    for _ in $(seq 200); do ! grep -q '^ready' "$1.log" || return 0; sleep 0.1; done
    cat "$1.log"
    return 1
}
serve_one() { serve one 4420 1-1000; one=$target; }
serve_two() { serve two 4421 1001-2000; two=$target; }
die() { kill -KILL "$1"; wait "$1" || true; }

truncate -s 128M "$work/disk.img"
serve_one
serve_two
cp "$here/guest-load.sh" share/load.sh
"$here/vm.sh" run -n 0 -e NQN=$nqn -s "$PWD/share" "$here/guest-processes.sh" &
vm=$!
trap 'kill $one $two $vm 2>/dev/null || true' EXIT
asked one-died die $one
asked one-stands-by serve_one
asked two-died die $two
asked two-stands-by serve_two
asked one-departs kill $one
wait $vm
