# shellcheck shell=bash
# Namespaces as files of a FUSE mount, and as loop devices over them. $mnt is the mountpoint, $file the file of namespace 1,
# $loop the loop device over it.

need_mount() {
    [ "$(id -u)" = 0 ] || skip 'mounting needs root'
    [ -c /dev/fuse ] || skip 'no /dev/fuse'
}

need_loop() {
    need_mount
    [ -c /dev/loop-control ] || skip 'no loop devices'
}

# attach_fuse [OPTIONS]: mounts at $mnt, over io_uring if $way is on
attach_fuse() {
    mnt=$PWD/mnt file=$PWD/mnt/nvme0n1 loop=
    trap clean_up EXIT
    background attach.log "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --as "fuse:$mnt" \
        --fuse-uring "$way" --reconnect-delay 1 "$@"
    attached=$pid
    until_line attach.log '^ready' "$attached"
    loop=$(grep -o '/dev/loop[0-9]*' attach.log | tail -n 1 || true)
}

# What a failed test leaves, or its folder could not be removed.
clean_up() {
    local device backing
    ! is_own "$attached" || kill -KILL "$attached" 2>/dev/null || true
    ! mountpoint -q fs || umount -l fs
    [ ! -b "${loop}p1" ] || delpart "$loop" 1 || true
    [ ! -b "/dev/mapper/rt-${loop##*/}" ] || remove_dm || true
    losetup -n -O NAME,BACK-FILE | while read -r device backing; do
        case $backing in "$mnt"/* | "$PWD/backing") losetup -d "$device" ;; esac
    done
    umount -lf "$mnt" 2>/dev/null || true
}

# detach_fuse: ends it, which removes everything
detach_fuse() {
    kill -TERM "$attached"
    ended "$attached" 15
    ! mountpoint -q "$mnt" || fail "$mnt is still mounted"
    [ -z "$loop" ] || loop_gone
}

# loop_gone: the device ends when the last process has closed it, also one that only scans all devices
loop_gone() {
    local n
    for n in $(seq 100); do
        losetup "$loop" >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    fail "$loop is still there"
}

remove_dm() { dmsetup remove "rt-${loop##*/}"; }
