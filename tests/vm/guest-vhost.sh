# shellcheck shell=bash
# Runs in the guest: its disk /dev/vda is a remote namespace, by vhost-user-blk. /share/grow requests a larger
# namespace, /share/killN for the backend's death and return, /share/target for the target's, /share/stop for the
# backend's orderly end and return, /share/crash for the end of this machine.
set -eu

step() { echo "--- $(cut -d' ' -f1 /proc/uptime) $*"; }
await() { # await SECONDS COMMAND...
    local n
    for n in $(seq $(($1 * 10))); do if "${@:2}"; then return 0; fi; sleep 0.1; done
    echo "never: ${*:2}"
    return 1
}
is_there() { [ -e "$1" ]; }
has_sectors() { [ "$(cat /sys/block/vda/size)" = "$1" ]; }
says() { # says FILE VALUE
    [ "$(cat "/sys/block/vda/$1")" = "$2" ] || { echo "$1: $(cat "/sys/block/vda/$1"), not $2"; return 1; }
}
write() { # write OPTIONS of fio...
    fio --name=w --filename=/dev/vda --rw=randwrite --ioengine=libaio --iodepth=16 --direct=1 \
        --verify=crc32c --end_fsync=1 --eta=never --output=/tmp/fio "$@"
    grep -E 'err=|(READ|WRITE):' /tmp/fio
}

writes() { awk '{print $5}' /sys/block/vda/stat; }
has_written() { [ "$(writes)" -gt "$1" ]; }
begin_to_write() { # write in the background
    local before
    before=$(writes)
    write --bs=4k --size=32M &
    await 60 has_written $((before + 50))
}

modprobe -a virtio_blk ext4
await 20 is_there /dev/vda
step sizes and limits
grep -H . /sys/block/vda/{size,serial,cache_type} /sys/block/vda/queue/{max_segments,max_segment_size,nr_requests}
says size "$SECTORS"
says queue/logical_block_size 4096
says queue/physical_block_size 4096
says queue/max_segments 126
says queue/discard_granularity 4096
says queue/discard_max_hw_bytes 2147483648
says queue/write_zeroes_max_bytes 2147483648
says cache_type 'write back'
says ro 0
[ -n "$(cat /sys/block/vda/serial)" ]
[ "$(find /sys/block/vda/mq -mindepth 1 -maxdepth 1 -type d | wc -l)" = 2 ]

for bs in 4k 64k 1M; do
    step "write and verify, $bs"
    write --bs=$bs --size=16M
done
step 'exercise: jobs that share stretches; through the page cache'
/share/exercise ops /dev/vda --direct --align 4096 --jobs 3 --stripe 20480 --ops 200
/share/exercise ops /dev/vda --size 1048576 --ops 200

step 'write zeroes, discard, flush'
dd if=/dev/urandom of=/dev/vda bs=1M count=2 oflag=direct 2>/dev/null
blkdiscard --zeroout --length 1M /dev/vda
[ "$(dd if=/dev/vda bs=1M count=1 iflag=direct 2>/dev/null | tr -d '\0' | wc -c)" = 0 ]
blkdiscard --offset 1M --length 1M /dev/vda
dd if=/dev/zero of=/dev/vda bs=4k count=1 conv=fsync 2>/dev/null

step resize
touch /share/grow
await 20 has_sectors "$GROWN"
write --bs=64k --offset=160M --size=16M

for n in 1 2; do
    step "the backend is killed, $n"
    begin_to_write
    touch /share/kill$n
    await 60 is_there /share/killed$n
    wait $!
done

step 'the target is killed'
begin_to_write
touch /share/target
await 60 is_there /share/returned
wait $!

step 'ext4, and the backend is stopped'
mkfs.ext4 -q -F /dev/vda
mkdir -p /mnt
mount /dev/vda /mnt
mkdir /mnt/tree
/share/exercise tree /mnt/tree --threads 2 --ops 300 --size 20000
(for i in $(seq 40); do dd if=/dev/urandom of=/mnt/f"$i" bs=64k count=8 conv=fsync 2>/dev/null; done) &
await 60 is_there /mnt/f5
touch /share/stop
await 60 is_there /share/stopped
wait $!
(cd /mnt && md5sum f* >/tmp/sums)
umount /mnt
echo 3 >/proc/sys/vm/drop_caches
mount /dev/vda /mnt
(cd /mnt && md5sum -c /tmp/sums | grep -c OK)
cp /tmp/sums /mnt/sums
/share/exercise tree /mnt/tree --threads 2 --ops 300 --size 20000 --check
fstrim /mnt
umount /mnt
e2fsck -fn /dev/vda
! dmesg | grep -E 'I/O error|EXT4-fs error'
step 'synced files, until the machine is killed'
mount /dev/vda /mnt
mkdir /mnt/synced
touch /share/crash
/share/exercise synced /mnt/synced --record /share/record
