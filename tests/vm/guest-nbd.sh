# shellcheck shell=bash
# Runs in the guest: the kernel's NBD client on a namespace that is attached outside. The target is killed and
# started again under a file system, the namespace grows, and at last target and host are killed: /share/STEP
# requests it, /share/STEP.done reports it.
set -eu

ask() {
    touch "/share/$1"
    until [ -e "/share/$1.done" ]; do sleep 0.1; done
}
attach() { nbd-client 10.0.2.2 "$PORT" /dev/nbd0 -connections 4; }

modprobe -a nbd ext4
attach
[ "$(blockdev --getsize64 /dev/nbd0)" = "$BYTES" ]
[ "$(cat /sys/block/nbd0/queue/logical_block_size)" = 512 ]
[ "$(cat /sys/block/nbd0/queue/fua)$(cat /sys/block/nbd0/queue/write_cache)" = '1write back' ]
[ "$(cat /sys/block/nbd0/queue/discard_max_bytes)" != 0 ]
fio --name=w --filename=/dev/nbd0 --rw=randrw --bssplit=512/20:4k/40:24k/20:256k/20 --numjobs=4 --size=8M \
    --offset_increment=8M --ioengine=libaio --iodepth=8 --direct=1 --verify=crc32c --end_fsync=1 \
    --group_reporting --eta=never --output=/tmp/fio
grep -E 'err= 0' /tmp/fio
/share/exercise ops /dev/nbd0 --direct --align 512 --jobs 3 --stripe 1536 --ops 300
/share/exercise ops /dev/nbd0 --size 1048576 --ops 300

mkfs.ext4 -q -F /dev/nbd0
mkdir -p /mnt
mount /dev/nbd0 /mnt
dd if=/dev/urandom of=/mnt/before bs=64k count=32 conv=fsync 2>/dev/null
(for i in $(seq 10); do dd if=/dev/urandom of=/mnt/during"$i" bs=64k count="$i" conv=fsync 2>/dev/null; done) &
mkdir /mnt/tree
(/share/exercise tree /mnt/tree --threads 2 --ops 300 --size 20000 >/tmp/tree 2>&1 || echo failed >>/tmp/tree) &
ask restart
wait
cat /tmp/tree
! grep failed /tmp/tree
(cd /mnt && md5sum before during* >/tmp/sums)
[ "$(wc -l </tmp/sums)" = 11 ]
umount /mnt
echo 3 >/proc/sys/vm/drop_caches
mount /dev/nbd0 /mnt
(cd /mnt && md5sum -c /tmp/sums)
/share/exercise tree /mnt/tree --threads 2 --ops 300 --size 20000 --check
fstrim /mnt
umount /mnt
e2fsck -fn /dev/nbd0
nbd-client -d /dev/nbd0

# Who connects again sees the new size, and all that was there.
ask grow
attach
[ "$(blockdev --getsize64 /dev/nbd0)" = $((2 * BYTES)) ]
dd if=/dev/urandom of=/tmp/end bs=64k count=4 2>/dev/null
dd if=/tmp/end of=/dev/nbd0 bs=64k seek=$((2 * BYTES / 65536 - 4)) oflag=direct 2>/dev/null
dd if=/dev/nbd0 bs=64k skip=$((2 * BYTES / 65536 - 4)) iflag=direct 2>/dev/null | cmp - /tmp/end
mount /dev/nbd0 /mnt
(cd /mnt && md5sum -c /tmp/sums)
! dmesg | grep -E 'I/O error|EXT4-fs error'

# What was synced survives the end of both while more is written, and the file system is whole.
mkdir /mnt/synced
/share/exercise synced /mnt/synced --record /tmp/record &
until [ "$(cat /tmp/record 2>/dev/null | wc -l)" -ge 10 ]; do sleep 0.1; done
ask crash
kill $! || true
wait $! || true
until umount /mnt; do sleep 0.1; done  # the last sync may still be ending
nbd-client -d /dev/nbd0
attach
mount /dev/nbd0 /mnt
(cd /mnt && md5sum -c /tmp/sums)
/share/exercise synced /mnt/synced --record /tmp/record --check
umount /mnt
e2fsck -fn /dev/nbd0
nbd-client -d /dev/nbd0
