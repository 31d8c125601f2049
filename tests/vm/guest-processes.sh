# shellcheck shell=bash
# Runs in the guest: the kernel's own multipath to two target processes with one disk, of which one stands by, with a file
# system and verified load on it, and its requests to processes.sh.
set -eu

. /share/load.sh

modprobe nvme-core multipath=Y
modprobe -a nvme-tcp ext4
for port in 4420 4421; do
    nvme connect -t tcp -a 10.0.2.2 -s $port -n "$NQN" -i 1 --reconnect-delay=1 --ctrl-loss-tmo=600 --keep-alive-tmo=3
done
await 20 is_there "$(path 1)/nvme0c1n1/ana_state"
await 20 [ -b /dev/nvme0n1 ]
await 20 is_ana 0 optimized
await 20 is_ana 1 inaccessible
load_begins
busy 0

fault one-died                    # the other one takes the disk
await 60 is_ana 1 optimized
busy 1
fault one-stands-by
await 60 is_state 0 live
await 20 is_ana 0 inaccessible
busy 1
fault two-died
await 60 is_ana 0 optimized
busy 0
fault two-stands-by
await 60 is_state 1 live
await 20 is_ana 1 inaccessible
fault one-departs                 # it is stopped
await 60 is_ana 1 optimized
busy 1

load_ends
