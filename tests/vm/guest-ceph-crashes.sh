# shellcheck shell=bash
# Runs in the guest: the kernel's own multipath over two gateways to one image, with a file system and verified load on
# it, and the crashes that it requests from run-ceph.sh. Data synced before each of them is there at the end.
set -eu

. /share/load.sh

ip route add default via 10.0.2.9
modprobe nvme-core multipath=Y
modprobe -a nvme-tcp ext4
for address in 192.0.2.7 192.0.2.8; do
    nvme connect -t tcp -a $address -s 4420 -n "$NQN" --reconnect-delay=1 --ctrl-loss-tmo=600 --keep-alive-tmo=3
done
await 20 is_there "$(path 1)/nvme0c1n1/ana_state"
await 20 [ -b /dev/nvme0n1 ]
await 20 is_ana 0 optimized
load_begins
busy 0

synced() { # synced NAME
    seq 200000 >"/mnt/$1"
    sync -f "/mnt/$1"
    sha256sum "/mnt/$1" >>/tmp/synced
}
synced before-osd
fault osd                         # killed, and started after some seconds
busy 0
synced before-gateway
fault gateway                     # the one that serves is killed: the other one takes over
await 60 is_ana 1 optimized
busy 1
synced before-second
fault back                        # it is started again, and the other one killed
await 60 is_state 0 live
await 60 is_ana 0 optimized
busy 0
echo 3 >/proc/sys/vm/drop_caches
sha256sum -c /tmp/synced
load_ends
ip route del default
