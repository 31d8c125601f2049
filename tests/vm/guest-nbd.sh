# shellcheck shell=bash
# Runs in the guest: the kernel's NBD client on a namespace that is attached outside.
set -eu

modprobe -a nbd ext4
nbd-client 10.0.2.2 "$PORT" /dev/nbd0 -connections 2
[ "$(blockdev --getsize64 /dev/nbd0)" = "$BYTES" ]
fio --name=w --filename=/dev/nbd0 --rw=randwrite --bs=4k --size=8M --ioengine=libaio --iodepth=16 --direct=1 \
    --verify=crc32c --end_fsync=1 --eta=never --output=/tmp/fio
grep -E 'err=' /tmp/fio
mkfs.ext4 -q -F /dev/nbd0
mkdir -p /mnt
mount /dev/nbd0 /mnt
for i in $(seq 10); do dd if=/dev/urandom of=/mnt/f"$i" bs=64k count="$i" 2>/dev/null; done
(cd /mnt && md5sum f* >/tmp/sums)
umount /mnt
mount /dev/nbd0 /mnt
(cd /mnt && md5sum -c /tmp/sums)
fstrim /mnt
umount /mnt
e2fsck -fn /dev/nbd0
nbd-client -d /dev/nbd0
