# shellcheck shell=bash
# A file system on an image of a real Ceph cluster, while OSD and gateway are killed: what was said to be on stable
# storage is there.

# shellcheck source=tests/lib/fuse.sh
. "$top/tests/lib/fuse.sh"

# ext4_gone: what a failed test leaves
ext4_gone() {
    ! mountpoint -q fs || umount -l fs
    [ -z "${nbd_device-}" ] || nbd-client -d "$nbd_device" >/dev/null 2>&1 || true
    [ -z "${mnt-}" ] || clean_up
    "$cluster" stop "$PWD/ceph" >stop.log 2>&1
}

# write_files: one after the other, each flushed before its checksum is noted, until there is a file `enough`
write_files() {
    local n
    for ((n = 0; ; n++)); do
        [ ! -e enough ] || return 0
        head -c $((RANDOM % 60000 + 1)) /dev/urandom >part
        dd if=part of="fs/$((n % 200))" conv=fsync status=none
        sed "s|-|fs/$((n % 200))|" <(sha256sum <part) >>written
    done
}

# writes COUNT: so many files more, soon
writes() { eventually 60 has_written $(($(wc -l <written) + $1)); }
has_written() { [ "$(wc -l <written)" -ge "$1" ]; }

# ext4_survives DEVICE: OSD and gateway are killed under load
ext4_survives() {
    mkfs.ext4 -q "$1"
    mkdir fs
    mount "$1" fs
    : >written
    background writer.log write_files
    local writer=$pid
    writes 10
    "$cluster" kill-osd "$PWD/ceph" 0
    sleep 1
    "$cluster" start-osd "$PWD/ceph" 0
    sleep 1
    kill -KILL "$target"
    ended "$target" 60
    rbd_took_over
    writes 20
    : >enough
    ended "$writer" 60
    wait "$writer" || { cat writer.log; fail 'a write failed'; }
    umount fs
    e2fsck -fn "$1" >fsck.log 2>&1 || { cat fsck.log; fail 'the file system is damaged'; }
    mount -o ro "$1" fs
    # The last of each name.
    tac written | awk '!seen[$2]++' >last
    [ "$(wc -l <last)" -gt 20 ] || fail "only $(wc -l <last) files"
    sha256sum --quiet -c last || fail 'what was flushed is not there'
    umount fs
}

test_rbd_ext4_over_fuse_survives_crashes() {
    need_loop
    ceph_lab --store bluestore
    trap ext4_gone EXIT
    serve --namespace "rbd:rbd/disk,$image,standby,create=96MiB"
    way=off
    attach_fuse --loop
    trap ext4_gone EXIT
    ext4_survives "$loop"
    detach_fuse
}

test_rbd_ext4_over_nbd_survives_crashes() {
    [ "$(id -u)" = 0 ] && [ -b /dev/nbd0 ] || skip 'no NBD devices of the kernel (modprobe nbd)'
    ceph_lab --store bluestore
    trap ext4_gone EXIT
    serve --namespace "rbd:rbd/disk,$image,standby,create=96MiB"
    attach --reconnect-delay 1
    nbd_device=/dev/nbd0
    nbd-client -unix "$socket" -N '' $nbd_device >nbd.log 2>&1 || { cat nbd.log; fail 'no NBD'; }
    ext4_survives $nbd_device
}
