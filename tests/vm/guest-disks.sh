# shellcheck shell=bash
# Runs in a guest of another monitor: its disks, which $DISKS names, are remote namespaces. It writes them in rounds until
# /share/more has gone and the disk $LAST comes, if one is named, and waits until that one has gone. What is on the disks in the end, the test reads.
set -eu

step() { echo "--- $(cut -d' ' -f1 /proc/uptime) $*"; }
await() { # await SECONDS COMMAND...
    local n
    for n in $(seq $(($1 * 10))); do if "${@:2}"; then return 0; fi; sleep 0.1; done
    echo "never: ${*:2}"
    return 1
}
is_there() { [ -e "/sys/block/$1" ]; }
has_more() { [ -e /share/more ] || { [ -n "$LAST" ] && is_gone "$LAST"; }; }
is_gone() { [ ! -e "/sys/block/$1" ]; }

# written DISK: its first MiB is 65,536 lines with the disk's name, and the next 3 MiB are verified
written() {
    awk -v name="$1" 'BEGIN {for (n = 0; n < 65536; n++) printf "the disk %-6s\n", name}' >"/tmp/$1"
    dd if="/tmp/$1" of="/dev/$1" bs=64k oflag=direct conv=fsync,notrunc 2>/dev/null
    dd if="/dev/$1" bs=64k count=16 iflag=direct 2>/dev/null | cmp - "/tmp/$1"
    fio --name=w --filename="/dev/$1" --offset=1M --size=3M --rw=randwrite --bs=16k --ioengine=libaio --iodepth=8 --direct=1 \
        --verify=crc32c --end_fsync=1 --eta=never --output=/tmp/fio
}

modprobe virtio_blk
for disk in $DISKS; do await 60 is_there "$disk"; done
grep -H . /sys/block/vd*/size
round=0
while :; do
    round=$((round + 1))
    for disk in $DISKS; do written "$disk"; done
    step "round $round"
    has_more || break
done
if [ -n "$LAST" ]; then
    written "$LAST"
    step "$LAST written"
    await 120 is_gone "$LAST"
fi
blkdiscard --offset 4M --length 1M "/dev/${DISKS%% *}"
! dmesg | grep -E 'I/O error'
