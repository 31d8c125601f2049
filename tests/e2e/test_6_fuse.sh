# shellcheck shell=bash
# Namespaces as files of a FUSE mount, and as loop devices over them, under unmodified programs. Everything
# over the classic device and over io_uring.

# shellcheck source=tests/lib/fuse.sh
. "$top/tests/lib/fuse.sh"

# each_way FUNCTION: in a folder of its own for each way that requests can come
each_way() {
    local way
    for way in off on; do
        one_way "$way" "$1"
    done
}

# either_way FUNCTION: the same, in a normal run over the way that is the default
either_way() {
    if [ "${THOROUGH-}" = 1 ]; then each_way "$1"; else one_way auto "$1"; fi
}

# one_way WAY FUNCTION
one_way() {
    local way=$1
    if [ "$way" = on ] && [ ! -e /sys/module/fuse/parameters/enable_uring ]; then
        echo 'no FUSE over io_uring before Linux 6.14'
        return 0
    fi
    mkdir "$way" && (cd "$way" && "$2")
}

# verify FILE JOBS BSRANGE [OPTIONS]: random writes and reads, each job on 4 MiB of its own
verify() {
    fio --name=verify --filename="$1" --numjobs="$2" --bsrange="$3" --rw=randrw --ioengine=libaio --direct=1 \
        --iodepth=16 --size=4M --offset_increment=8M --io_size=6M --verify=crc32c --verify_fatal=1 \
        --group_reporting --eta=never --output="fio-$2-$3.log" "${@:4}"
}

fuse_files() {
    serve --namespace mem:128MiB --namespace mem:64MiB,lba=4096
    attach_fuse --lanes 2 --cores 0-1
    [ "$(stat -c '%s %a %U' "$file")" = '134217728 600 root' ]
    [ "$(stat -c %s "$mnt/nvme0n2")" = 67108864 ]
    [ "$(ls "$mnt")" = $'nvme0n1\nnvme0n2' ]
    verify "$file" 1 512-256k
    verify "$file" 4 4k-1M
    verify "$file" 16 512-64k
    verify "$mnt/nvme0n2" 4 512-32k # less than a block
    verify "$file" 2 1k-128k --direct=0 --ioengine=psync
    # Holes read as zeroes; the size stays.
    dd if=/dev/urandom of="$file" bs=1M count=4 conv=notrunc,fsync status=none
    fallocate --punch-hole --offset 1000 --length 2M "$file"
    fallocate --zero-range --offset 3M --length 5000 "$file"
    cmp -n $((2 << 20)) "$file" /dev/zero -i 1000:0
    cmp -n 5000 "$file" /dev/zero -i $((3 << 20)):0
    [ "$(stat -c %s "$file")" = 134217728 ]
    : >"$file"
    [ "$(stat -c %s "$file")" = 134217728 ] || fail 'truncated'
    ! truncate -s 1G "$file" 2>/dev/null || fail 'made longer'
    ! dd if=/dev/zero of="$file" bs=1M seek=128 count=1 conv=notrunc status=none 2>/dev/null || fail 'beyond the end'
    ! touch "$mnt/new" 2>/dev/null || fail 'a new file'
    detach_fuse
}
test_fuse_files() { need_mount && each_way fuse_files; }

# When memory is short the kernel writes to the device: who serves it does not wait for that.
fuse_in_reclaim() {
    serve --namespace mem:16MiB
    attach_fuse
    [ "$(awk '/^VmLck/ {print $2}' "/proc/$attached/status")" -gt 0 ] || fail 'memory is not locked'
    local task flags
    if grep -q CAP_SYS_RESOURCE attach.log; then
        echo 'threads may wait for writes: no CAP_SYS_RESOURCE here'
        detach_fuse
        return
    fi
    for task in "/proc/$attached/task"/*; do
        flags=$(sed 's/.*) //' "$task/stat" | cut -d' ' -f7)
        # PF_MEMALLOC_NOIO
        [ $((flags & 0x80000)) != 0 ] || fail "$(cat "$task/comm") may wait for writes to get memory"
    done
    detach_fuse
}
test_fuse_serves_while_memory_is_short() { need_mount && either_way fuse_in_reclaim; }

fuse_read_only() {
    truncate -s 16M disk.img
    serve --namespace "file:$PWD/disk.img,ro"
    attach_fuse
    cmp "$file" disk.img
    ! dd if=/dev/zero of="$file" bs=4k count=1 conv=notrunc status=none 2>/dev/null || fail 'a write succeeded'
    detach_fuse
    [ ! -e "$mnt" ] || fail 'the mountpoint was made and is still there'
}
test_fuse_read_only() { need_mount && either_way fuse_read_only; }

fuse_loop_device() {
    serve --namespace mem:64MiB,lba=4096
    attach_fuse --loop
    grep -q "^ready $loop $file " attach.log
    [ "$(blockdev --getsize64 --getss "$loop" | xargs)" = '67108864 4096' ]
    [ "$(cat "/sys/block/${loop#/dev/}/loop/dio")" = 1 ]
    verify "$loop" 1 4k-256k
    verify "$loop" 8 4k-64k
    blkdiscard --zeroout "$loop"
    cmp -n $((64 << 20)) "$loop" /dev/zero
    detach_fuse
}
test_fuse_loop_device() { need_loop && either_way fuse_loop_device; }

# What was synced is in the file system after its target was killed and it was attached anew.
fuse_file_system() {
    serve --namespace "file:$PWD/disk.img,size=128MiB"
    attach_fuse --loop
    mkfs.ext4 -q "$loop"
    mkdir fs
    mount "$loop" fs
    mkdir fs/a
    dd if=/dev/urandom of=fs/a/synced bs=1M count=20 status=none
    cp -r "$top/docs" fs/a
    sync -f fs
    (cd fs && find . -type f -print0 | xargs -0 sha256sum) >sums
    background load.log dd if=/dev/zero of=fs/lost bs=64k count=500
    kill -KILL "$target"
    ended "$target" 60
    kill -TERM "$attached"
    ended "$attached" 30
    umount -l fs
    wait || true
    serve --namespace "file:$PWD/disk.img"
    attach_fuse --loop
    e2fsck -p "$loop" || [ $? = 1 ]
    e2fsck -fn "$loop"
    mount "$loop" fs
    (cd fs && sha256sum --quiet -c) <sums
    umount fs
    detach_fuse
}
test_fuse_file_system_survives_a_killed_target() { need_loop && either_way fuse_file_system; }

fuse_return() {
    serve --namespace "file:$PWD/disk.img,size=64MiB"
    attach_fuse
    fio --name=load --filename="$file" --rw=randwrite --bs=4k --size=16M --ioengine=libaio --direct=1 \
        --iodepth=32 --rate=8m --verify=crc32c --verify_fatal=1 --eta=never --output=load.log &
    local load=$!
    echo "$load" >>"$work/.pids"
    moves_data
    alive "$load" || { cat load.log; fail 'fio ended before the crash'; }
    kill -KILL "$target"
    ended "$target" 60
    serve --namespace "file:$PWD/disk.img"
    wait "$load" || { cat load.log; fail 'fio saw errors'; }
    detach_fuse
}
test_fuse_target_returns_under_load() { need_mount && each_way fuse_return; }

# A target that stays away: EIO, and nothing hangs.
fuse_loss() {
    serve --namespace mem:64MiB
    attach_fuse --ctrl-loss-tmo 2
    kill -KILL "$target"
    ended "$target" 60
    ! timeout 60 dd if="$file" of=/dev/null bs=4k count=1 iflag=direct 2>dd.log || fail 'read from nowhere'
    grep -q 'Input/output error' dd.log
    detach_fuse
}
test_fuse_target_stays_away() { need_mount && either_way fuse_loss; }

fuse_resize() {
    configure "file:$PWD/disk.img,size=64MiB"
    serve_configured
    attach_fuse --loop
    configure "file:$PWD/disk.img,size=128MiB"
    kill -HUP "$target"
    local n
    for n in $(seq 100); do
        [ "$(blockdev --getsize64 "$loop")" != 134217728 ] || break
        sleep 0.1
    done
    [ "$(blockdev --getsize64 "$loop")" = 134217728 ] || fail "$loop did not grow"
    [ "$(stat -c %s "$file")" = 134217728 ] || fail "$file did not grow"
    verify "$file" 1 4k-64k --offset=100M
    verify "$loop" 1 4k-64k --offset=112M
    detach_fuse
}
test_fuse_resize() { need_loop && either_way fuse_resize; }

# Programs that use it get errors; detach does not wait for them.
fuse_detach_under_load() {
    serve --namespace mem:128MiB
    attach_fuse --loop
    local name loads=()
    for name in "$file" "$loop"; do
        fio --name=load --filename="$name" --rw=randrw --bs=4k --numjobs=2 --ioengine=libaio --direct=1 --iodepth=16 \
            --size=32M --time_based --runtime=600 --eta=never --output="load-${name##*/}.log" >/dev/null 2>&1 &
        loads+=($!)
        echo $! >>"$work/.pids"
    done
    moves_data
    kill -TERM "$attached"
    ended "$attached" 15
    for name in "${loads[@]}"; do ended "$name" 15; done
    ! mountpoint -q "$mnt" || fail "$mnt is still mounted"
    loop_gone
}
test_fuse_detach_under_load() { need_loop && each_way fuse_detach_under_load; }

# The same with a target that does not answer.
fuse_detach_without_target() {
    serve --namespace mem:64MiB
    attach_fuse
    kill -KILL "$target"
    ended "$target" 60
    background dd.log dd if="$file" of=/dev/null bs=4k count=1 iflag=direct
    local reader=$pid
    eventually 30 waits_for_an_answer
    alive "$reader" || fail 'the read did not wait'
    kill -TERM "$attached"
    ended "$attached" 15
    ended "$reader" 60
    ! mountpoint -q "$mnt" || fail "$mnt is still mounted"
}
test_fuse_detach_without_target() { need_mount && either_way fuse_detach_without_target; }

# What is cached for a loop device cannot be written any more.
fuse_detach_loop_without_target() {
    serve --namespace mem:64MiB
    attach_fuse --loop
    dd if=/dev/urandom of="$loop" bs=1M count=8 status=none
    kill -KILL "$target"
    ended "$target" 60
    kill -TERM "$attached"
    ended "$attached" 30
    ! mountpoint -q "$mnt" || fail "$mnt is still mounted"
}
test_fuse_detach_loop_without_target() { need_loop && either_way fuse_detach_loop_without_target; }

# A file system is still mounted from a loop device: what was written is kept, and what stays is said.
fuse_detach_mounted() {
    serve --namespace mem:64MiB
    attach_fuse --loop --id mounted
    mkfs.ext4 -q "$loop"
    mkdir fs
    mount "$loop" fs
    echo data >fs/a
    ! "$ROADTRAIN" detach mounted >detach.log || fail 'nothing said'
    grep -q "still there: loop:$loop: in use" detach.log || fail "$(cat detach.log)"
    ended "$attached" 15
    ! mountpoint -q "$mnt" || fail "$mnt is still mounted"
    umount fs
    loop_gone
    attach_fuse --loop
    mount "$loop" fs
    [ "$(cat fs/a)" = data ]
    umount fs
    detach_fuse
}
test_fuse_detach_mounted() { need_loop && either_way fuse_detach_mounted; }

# stacked MAKE REMOVE: the same for a file system on a device that MAKE puts on the loop device and prints; what
# was written there is written back when the loop device ends, and `detach` names it.
stacked() {
    local upper
    serve --namespace mem:64MiB
    attach_fuse --loop --id stacked
    upper=$("$1")
    mkfs.ext4 -q "$upper"
    mkdir fs
    mount "$upper" fs
    dd if=/dev/urandom of=fs/a bs=1M count=8 status=none
    sha256sum fs/a >sum
    ! "$ROADTRAIN" detach stacked >detach.log || fail 'nothing said'
    grep -qF "still there: loop:$loop: in use ($upper mounted at $PWD/fs)" detach.log || fail "$(cat detach.log)"
    umount fs
    "$2"
    loop_gone
    attach_fuse --loop
    upper=$("$1")
    mount "$upper" fs
    sha256sum --quiet -c sum
    umount fs
    "$2"
    detach_fuse
}

add_partition() {
    addpart "$loop" 1 2048 100000
    echo "${loop}p1"
}
remove_partition() { delpart "$loop" 1; }
fuse_detach_partition() { stacked add_partition remove_partition; }
test_fuse_detach_mounted_partition() {
    need_loop
    command -v addpart >/dev/null || skip 'addpart is not installed'
    either_way fuse_detach_partition
}

add_dm() {
    echo "0 100000 linear $loop 2048" | dmsetup create "rt-${loop##*/}" >/dev/null
    dmsetup mknodes
    echo "/dev/mapper/rt-${loop##*/}"
}
fuse_detach_dm() { stacked add_dm remove_dm; }
test_fuse_detach_mounted_device_mapper() {
    need_loop
    command -v dmsetup >/dev/null || skip 'dmsetup is not installed'
    grep -qw device-mapper /proc/devices || skip 'this kernel has no device mapper'
    either_way fuse_detach_dm
}

test_fuse_switch_is_turned_back() {
    need_mount
    local switch=/sys/module/fuse/parameters/enable_uring before
    [ -e $switch ] || skip 'no FUSE over io_uring before Linux 6.14'
    before=$(<$switch)
    serve --namespace mem:64MiB
    way=on attach_fuse
    grep -q 'io_uring' attach.log
    [ "$(<$switch)" = "$before" ]
    detach_fuse
}

# kill_attached: as it may happen, with a file system mounted from its loop device
kill_attached() {
    attach_fuse --loop --id killed
    mkfs.ext4 -q "$loop"
    mkdir -p fs
    mount "$loop" fs
    echo data >fs/a
    kill -KILL "$attached"
    ended "$attached" 60
    ! ls "$mnt" 2>/dev/null || fail 'the mount lives'
    ! sync -f fs 2>/dev/null || fail 'synced to nowhere'
    umount fs
}

fuse_leftovers() {
    serve --namespace mem:64MiB
    kill_attached
    "$ROADTRAIN" list | grep -q '^killed *gone'
    "$ROADTRAIN" detach --all
    ! mountpoint -q "$mnt" || fail "$mnt is still mounted"
    loop_gone
    [ "$("$ROADTRAIN" list --json)" = '[]' ]
    # The next one at the same place removes them, too, even without a record of them.
    kill_attached
    local old=$loop
    attach_fuse
    cmp -n 65536 "$file" "$file"
    loop=$old loop_gone
    kill -KILL "$attached"
    ended "$attached" 60
    rm -r "$ROADTRAIN_RUNTIME_DIR"
    attach_fuse
    cmp -n 65536 "$file" "$file"
    detach_fuse
}
test_fuse_leftovers_of_a_killed_process() { need_loop && either_way fuse_leftovers; }

# Folders that were made to mount there go again, also after a crash; those that were there stay.
test_fuse_folders() {
    need_mount
    local at=$PWD/there/made/mnt id
    mkdir there
    serve --namespace mem:16MiB
    for id in killed ended; do
        "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --as "fuse:$at" --id $id --background
        cmp -n 65536 "$at/nvme0n1" /dev/zero
        [ $id = ended ] || kill -KILL "$("$ROADTRAIN" list --json | jq -r '.[0].pid')"
        "$ROADTRAIN" detach $id
        [ -d there ] || fail 'not ours'
        [ ! -e there/made ] || fail "$(find there)"
    done
}

# One target at two places, and a file that a process has open: all end with one command.
test_fuse_detach_all() {
    need_loop
    local n at
    serve --namespace mem:64MiB --namespace mem:32MiB
    for n in 1 2; do
        at=$PWD/mnt$n
        "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --as "fuse:$at" --loop --background >ready$n.log
        grep -q "^ready /dev/loop[0-9]* $at/nvme0n1 /dev/loop[0-9]* $at/nvme0n2 " ready$n.log || fail "$(cat ready$n.log)"
        cmp -n 65536 "$at/nvme0n2" /dev/zero
    done
    exec 9<"$PWD/mnt1/nvme0n1"
    "$ROADTRAIN" detach --all
    ! mountpoint -q mnt1 || fail 'mnt1 is still mounted'
    ! mountpoint -q mnt2 || fail 'mnt2 is still mounted'
    losetup -n -O BACK-FILE >loops.log
    ! grep -q "^$PWD/" loops.log || fail "$(losetup)"
    [ "$("$ROADTRAIN" list --json)" = '[]' ]
    exec 9<&-
}

# A target whose file is on a disk that goes away: what was acknowledged and not flushed may be lost. It says so at its
# end, and fails.
test_fuse_below_a_target_goes_away() {
    need_mount
    local way=off far near rc=0
    serve --namespace mem:64MiB
    far=$target
    attach_fuse --ctrl-loss-tmo 1
    port=$(free_port)
    serve --namespace "file:$file"
    near=$target
    attach
    qemu-io -t none -f raw -c 'write -P 7 0 1M' -c 'read -P 7 0 1M' "$uri"
    qemu-io -t writeback -f raw -c 'write -P 8 0 1M' "$uri" # flushed when it closes
    background write.log qemu-io -t unsafe -f raw -c 'write -P 9 0 1M' "$uri" # never flushed
    ended "$pid" 10
    kill -KILL "$far"
    ended "$far" 60
    kill -TERM "$attached"
    ended "$attached" 10
    kill -TERM "$near"
    ended "$near" 20
    wait "$near" || rc=$?
    [ $rc = 1 ] || { cat target.log; fail "status $rc"; }
    grep -i 'may be lost' target.log
}

# The same while detach is at work: a killed process ends its last system call when its mount fails requests. Here
# another process makes the device, with a file that it has opened before.
test_fuse_loop_that_is_made_during_detach() {
    need_loop
    way=off
    serve --namespace mem:8MiB
    attach_fuse --id early
    background loop.log python3 -c 'import fcntl, os, sys, time
file, control = os.open(sys.argv[1], os.O_RDWR), os.open("/dev/loop-control", os.O_RDWR)
print("opened", flush=True)
while not os.path.exists("go"): time.sleep(0.001)
time.sleep(0.1)
path = f"/dev/loop{fcntl.ioctl(control, 0x4C82)}"
fcntl.ioctl(os.open(path, os.O_RDWR), 0x4C00, file)
print(path, flush=True)' "$file"
    local maker=$pid
    until_line loop.log '^opened' "$maker"
    kill -KILL "$attached" && ended "$attached" 10
    touch go
    "$ROADTRAIN" detach early >detach.log 2>&1 || fail "$(cat detach.log)"
    ended "$maker" 10
    loop=$(tail -n 1 loop.log)
    [ -b "$loop" ] || fail "$(cat loop.log)"
    ! mountpoint -q "$mnt" || fail "$mnt is still mounted"
    loop_gone
}

# An attachment may be killed after it has made its loop device and before its entry has it: detach finds the device by its
# file. Here the device is made by hand.
test_fuse_loop_that_was_not_noted() {
    need_loop
    way=off
    serve --namespace mem:8MiB
    attach_fuse --id early
    loop=$(losetup --find --show "$file")
    kill -KILL "$attached" && ended "$attached" 10
    "$ROADTRAIN" detach early >detach.log 2>&1 || fail "$(cat detach.log)"
    ! mountpoint -q "$mnt" || fail "$mnt is still mounted"
    loop_gone
}
