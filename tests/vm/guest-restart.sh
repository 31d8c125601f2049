# shellcheck shell=bash
# Runs in the guest: a file system on a target that is killed and started again while it is written.
# /share/restartN requests it, /share/lostN reports the lost connection, /share/restartedN that the target is back.
set -eu

modprobe -a nvme-tcp ext4
nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" -i 2 --reconnect-delay=1 --ctrl-loss-tmo=120
for _ in $(seq 100); do [ ! -b /dev/nvme0n1 ] || break; sleep 0.1; done
mkfs.ext4 -q -F /dev/nvme0n1
mkdir -p /mnt
mount /dev/nvme0n1 /mnt

for n in 1 2; do
    # Before: on stable storage. During: written while the target is away.
    dd if=/dev/urandom of=/mnt/before$n bs=64k count=64 conv=fsync 2>/dev/null
    (for i in $(seq 10); do dd if=/dev/urandom of=/mnt/during$n-$i bs=64k count=16 conv=fsync 2>/dev/null; done) &
    touch /share/restart$n
    until grep -q connecting /sys/class/nvme/nvme0/state; do sleep 0.1; done
    touch /share/lost$n
    until [ -e /share/restarted$n ]; do sleep 0.1; done
    wait $!
    until grep -q live /sys/class/nvme/nvme0/state; do sleep 0.1; done
done
(cd /mnt && md5sum before* during* >/tmp/sums)
[ "$(wc -l </tmp/sums)" = 22 ]
umount /mnt
e2fsck -fn /dev/nvme0n1
echo 3 >/proc/sys/vm/drop_caches
mount /dev/nvme0n1 /mnt
(cd /mnt && md5sum -c /tmp/sums)
umount /mnt
nvme disconnect -n "$NQN"
! dmesg | grep -E 'I/O error|EXT4-fs error'
