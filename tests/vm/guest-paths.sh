# shellcheck shell=bash
# Runs in the guest: the kernel's own multipath over two listeners of one target, with a file system and verified load
# on it, and the faults that it requests from paths.sh.
set -eu

. /share/load.sh

modprobe nvme-core multipath=Y
modprobe -a nvme-tcp ext4
for address in 10.0.2.3 10.0.2.2; do
    nvme connect -t tcp -a $address -s "$PORT" -n "$NQN" -i 1 --reconnect-delay=1 --ctrl-loss-tmo=600 --keep-alive-tmo=3
done
await 20 is_there "$(path 1)/nvme0c1n1/ana_state"
await 20 [ -b /dev/nvme0n1 ]
await 20 is_ana 0 optimized
await 20 is_ana 1 non-optimized
load_begins
busy 0

fault change                      # the first is inaccessible
await 20 is_ana 0 inaccessible
busy 1
fault back                        # the first is optimized again
await 20 is_ana 0 optimized
busy 0
fault black-hole                  # nothing gets to or from the first address
await 60 is_state 0 connecting
busy 1
fault mended
await 60 is_state 0 live
busy 0
fault cut                         # the first one's connections are reset
await 20 is_there /share/cut.done
await 60 is_state 0 live
busy 0
fault killed                      # the process is gone, and started again
await 60 is_state 0 live
await 60 is_state 1 live
busy 0

load_ends
