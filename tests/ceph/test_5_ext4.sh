# shellcheck shell=bash
# A file system on an image, while OSD and gateway are killed: what was said to be on stable storage is there.

# shellcheck source=tests/lib/fuse.sh
. "$top/tests/lib/fuse.sh"

thorough+=(rbd_ext4_survives_crashes)

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

test_rbd_ext4_survives_crashes() {
    need_loop
    ceph_lab
    serve --namespace "rbd:rbd/disk,$image,standby,create=96MiB"
    way=off
    attach_fuse --loop
    mkfs.ext4 -q "$loop"
    mkdir fs
    mount "$loop" fs
    : >written
    background writer.log write_files
    local writer=$pid
    writes 10
    "$cluster" kill-osd "$ceph" 0
    "$cluster" start-osd "$ceph" 0
    writes 10
    kill -KILL "$target"
    ended "$target" 60
    serve --namespace "rbd:rbd/disk,$image,standby"
    writes 20
    : >enough
    ended "$writer" 60
    wait "$writer" || { cat writer.log; fail 'a write failed'; }
    umount fs
    e2fsck -fn "$loop" >fsck.log 2>&1 || { cat fsck.log; fail 'the file system is damaged'; }
    mount -o ro "$loop" fs
    # The last of each name.
    tac written | awk '!seen[$2]++' >last
    [ "$(wc -l <last)" -gt 20 ] || fail "only $(wc -l <last) files"
    sha256sum --quiet -c last || fail 'what was flushed is not there'
    umount fs
    detach_fuse
}
