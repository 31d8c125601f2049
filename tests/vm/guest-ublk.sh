# shellcheck shell=bash
# Runs in the guest: target and host of ours over the loopback, the namespace as the kernel's ublk device.
# /share has our program and the libraries that it loads.
set -eu

export LD_LIBRARY_PATH=/share/lib
nqn=nqn.2026-11.test:ublk
dev=/dev/ublkb0
queue=/sys/block/ublkb0/queue
mib=160 # of the namespace
mkdir -p /mnt
modprobe -a ublk_drv ext4

say() { echo "== $(cut -d' ' -f1 /proc/uptime) $*"; }
failed() { echo "failed: $*"; tail -n 20 /tmp/*.log; exit 1; }
is() { [ "$(cat "$queue/$1")" = "$2" ] || failed "$1 is $(cat "$queue/$1"), not $2"; }

until_line() { # LOG PATTERN PID [SECONDS]
    local n
    for ((n = 0; n < ${4:-30} * 10; n++)); do
        ! grep -q "$2" "$1" || return 0
        kill -0 "$3" 2>/dev/null || failed "ended before it said '$2'"
        sleep 0.1
    done
    failed "never said '$2'"
}
ended() { # PID SECONDS
    local n
    for ((n = 0; n < $2 * 10; n++)); do
        kill -0 "$1" 2>/dev/null || { wait "$1" || true; return 0; }
        sleep 0.1
    done
    failed "process $1 did not end within $2 s"
}
serve() { # [NAMESPACE]
    : >/tmp/target.log
    /share/roadtrain serve -a 127.0.0.1 -s 4420 -n $nqn --namespace "${1-file:/tmp/disk.img,size=${mib}MiB}" \
        --namespace mem:16MiB >>/tmp/target.log 2>&1 &
    target=$!
    until_line /tmp/target.log ^ready $target
}
attach() { # DEVICE [OPTIONS]
    : >/tmp/attach.log
    /share/roadtrain attach -t tcp -a 127.0.0.1 -s 4420 -n $nqn --as "$@" >>/tmp/attach.log 2>&1 &
    attached=$!
    until_line /tmp/attach.log "^ready $dev $nqn nsid 1" $attached
}
gone() { # SECONDS
    local n
    for ((n = 0; n < $1 * 10; n++)); do
        [ -e $dev ] || return 0
        sleep 0.1
    done
    failed "$dev is still there"
}
detach() { # [SECONDS]
    kill -TERM $attached
    gone "${1:-20}"
    exec 9>&- # before Linux 6.5 it does not end while somebody has the device open
    ended $attached 20
    [ ! -e /dev/ublkc0 ] || failed "/dev/ublkc0 is still there"
}
writes() { awk '{print $5}' /sys/block/ublkb0/stat; }
load() { # NAME OPTIONS...: a job in the background, in $load, that has begun to write
    local n before
    before=$(writes)
    job "$@" >/dev/null 2>&1 &
    load=$!
    for ((n = 0; n < 300; n++)); do
        [ $(($(writes) - before)) -lt 50 ] || return 0
        kill -0 $load 2>/dev/null || failed 'the load ended'
        sleep 0.1
    done
    failed 'the load does not begin'
}
kill_attached() {
    kill -KILL $attached
    wait $attached || true
}
kill_target() {
    kill -KILL $target
    wait $target || true
}
resizes() { # whether the kernel can resize a device in use
    local release
    release=$(uname -r)
    [ "$(printf '%s\n' 6.16 "${release%%-*}" | sort -V | head -n 1)" = 6.16 ]
}
job() { # NAME OPTIONS...
    fio --name="$1" --filename=$dev --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --eta=never \
        --allow_file_create=0 --output=/tmp/fio-"$1".log "${@:2}"
}

say 'attach: sizes and limits'
serve
attach ublk --lanes 2 --cores 0-1
[ "$(blockdev --getsize64 $dev)" = $((160 << 20)) ] || failed size
[ "$(ls /sys/block/ublkb0/mq | wc -l)" = 2 ] || failed queues
is logical_block_size 512
is max_hw_sectors_kb 512
is write_cache 'write back'
is fua 1
is physical_block_size 4096
is discard_granularity 4096
[ "$(cat $queue/discard_max_bytes)" -gt $((1 << 30)) ] || failed discard
is write_zeroes_max_bytes $((32 << 20))

say 'verified: mixed sizes, several jobs'
job mixed --rw=randrw --bsrange=512-512k --bs_unaligned=0 --numjobs=4 --size=8M --offset_increment=32M \
    --iodepth=16 --group_reporting
/share/exercise ops $dev --direct --align 512 --jobs 3 --stripe 1536 --ops 200
/share/exercise ops $dev --size 1048576 --ops 200
say 'zeroes and discard'
dd if=/dev/urandom of=$dev bs=1M count=4 conv=fsync 2>/dev/null
blkdiscard -z -o 1M -l 1M $dev
dd if=$dev bs=1M count=1 skip=1 2>/dev/null | cmp -n 1048576 - /dev/zero
blkdiscard $dev

say 'a file system, served by two processes, one after the other'
mkfs.ext4 -q -F $dev
mount $dev /mnt
mkdir /mnt/tree
/share/exercise tree /mnt/tree --threads 2 --ops 300 --size 20000 &
load=$!
until [ -n "$(ls /mnt/tree)" ]; do sleep 0.1; done
kill_attached
attach ublk:0
wait $load
fstrim /mnt
umount /mnt
mount $dev /mnt
/share/exercise tree /mnt/tree --threads 2 --ops 300 --size 20000 --check

say 'both ends killed: what was synced is there'
mkdir /mnt/synced
/share/exercise synced /mnt/synced --record /tmp/record >/dev/null 2>&1 &
load=$!
until [ "$(cat /tmp/record 2>/dev/null | wc -l)" -ge 10 ]; do
    kill -0 $load || failed 'the load ended'
    sleep 0.1
done
kill_target
kill_attached
/share/roadtrain detach --all &
detaching=$!
gone 30
wait $load || true
umount /mnt
wait $detaching
serve
attach ublk
mount $dev /mnt
/share/exercise synced /mnt/synced --record /tmp/record --check
umount /mnt
e2fsck -fn $dev

say 'killed under I/O, and taken over'
load kill --rw=randwrite --bsrange=4k-64k --size=64M --iodepth=16
kill_attached
sleep 0.5
kill -0 $load || failed 'the load did not wait'
attach ublk:0 --recover --lanes 2 --cores 0-1
wait $load
say 'killed and taken over with fewer lanes, by its name'
load again --rw=randwrite --bs=4k --size=8M --iodepth=16
kill_attached
attach ublk --id ublk0
wait $load

say 'the target killed under I/O; it comes back larger'
load target --rw=randwrite --bs=16k --size=12M --iodepth=8
kill_target
sleep 0.5
mib=176
serve
wait $load
if resizes; then
    until_line /tmp/attach.log 'has another size now' $attached
    [ "$(blockdev --getsize64 $dev)" = $((176 << 20)) ] || failed 'not larger'
else
    echo 'SKIPPED: resize: this kernel cannot (Linux 6.16 can); it is only told'
    until_line /tmp/attach.log 'cannot change the device.s size' $attached
    [ "$(blockdev --getsize64 $dev)" = $((160 << 20)) ] || failed 'it has changed'
fi

say 'what was not written yet is written at the end'
dd if=/dev/urandom of=/tmp/data bs=1M count=16 2>/dev/null
exec 9<>$dev  # closing it would write back, too
dd if=/tmp/data bs=1M >&9 2>/dev/null
detach
attach ublk
[ "$(blockdev --getsize64 $dev)" = $((176 << 20)) ] || failed 'not larger when attached again'
cmp -n $((16 << 20)) /tmp/data $dev

say 'detach under I/O'
load detach --rw=randwrite --bs=4k --size=64M --iodepth=32
detach
! wait $load || failed 'the load saw no error'

say 'detach under I/O without a target'
attach ublk
load away --rw=randwrite --bs=4k --size=64M --iodepth=32
kill -STOP $target
sleep 0.5
detach 60
! wait $load || failed 'the load saw no error'
kill_target

say 'what a killed process has left is removed by detach'
serve
attach ublk
load left --rw=randwrite --bs=4k --size=64M --iodepth=32
kill_attached
sleep 0.5
kill -0 $load || failed 'the load did not wait'
/share/roadtrain detach --all
! wait $load || failed 'the load saw no error'
[ ! -e $dev ] || failed "$dev is still there"

say 'another namespace does not take a device over'
attach ublk
kill_attached
if /share/roadtrain attach -a 127.0.0.1 -s 4420 -n $nqn --nsid 2 --as ublk:0 2>/tmp/refused.log; then
    failed 'it does'
fi
grep -q 'another namespace' /tmp/refused.log || failed 'refused for another reason'
attach ublk:0 --recover --ctrl-loss-tmo 1
# Without the registry, which would refuse it first.
if ROADTRAIN_RUNTIME_DIR=/tmp/other /share/roadtrain attach -a 127.0.0.1 -s 4420 -n $nqn --as ublk:0 2>/tmp/refused.log; then
    failed 'nor is one taken that has a process'
fi
grep -q "process $attached serves it" /tmp/refused.log || failed 'refused for another reason'

say 'a target that stays away'
kill_target
if dd if=$dev of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; then failed 'the read succeeds'; fi
detach

say 'read-only'
cat /tmp/disk.img >/tmp/read-only.img # a file keeps its block size, another one may have another
serve file:/tmp/read-only.img,lba=4096,ro
attach ublk
[ "$(blockdev --getro $dev)" = 1 ] || failed 'not read-only'
is logical_block_size 4096
cmp -n $((1 << 20)) $dev /tmp/read-only.img
detach

say 'in the background'
/share/roadtrain attach -a 127.0.0.1 -s 4420 -n $nqn --as ublk --background | grep "^ready $dev"
/share/roadtrain list | grep $dev
/share/roadtrain status
/share/roadtrain detach --all
[ ! -e $dev ] || failed "$dev is still there"
say 'all done'
