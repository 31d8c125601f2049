# shellcheck shell=bash
# Every byte against a model: the files of the FUSE front-end, and file systems on its loop devices.

# Parts of blocks, by threads that share them; mappings, holes; all on a namespace of 4096-byte blocks.
fuse_operations() {
    serve --namespace "file:$PWD/disk.img,size=64MiB,lba=4096"
    attach_fuse --loop --lanes 2
    "$EXERCISE" ops "$file" --fixed --ops "$(so_many 2000)"
    "$EXERCISE" ops "$file" --fixed --direct --jobs 4 --stripe 700 --ops "$(so_many 1000)"
    "$EXERCISE" ops "$loop" --ops "$(so_many 2000)"
    "$EXERCISE" ops "$loop" --direct --align 4096 --jobs 4 --stripe 8192 --ops "$(so_many 1000)"
    detach_fuse
}
test_exercise_fuse_operations() { need_loop && either_way fuse_operations; }

# neighbours NAMESPACE DISK: writers of neighbouring 512-byte blocks. The target is killed again and again; each time the
# disk has whole blocks, none older than what was acknowledged.
neighbours() {
    local namespace=$1 disk=$2 way=off load kills=0 pause=0.2
    rm -f record killed
    serve --namespace "$namespace"
    grep -q 'read-modify-write' target.log || fail 'the log says nothing of it'
    attach_fuse --lanes 2
    prints '.namespaces[0] | .block_bytes == 512 and .capacity_bytes == 8388608' \
        "$ROADTRAIN" identify -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --json
    background load.log "$EXERCISE" neighbours "$file" --record record --size $((8 << 20)) \
        --writers 8 --ops "$(($(so_many 6000) / 8))" --until killed
    load=$pid
    until [ -s record ]; do sleep 0.05; done
    while sleep "$pause" && alive "$load"; do
        kill -KILL "$target"
        ended "$target" 60
        kills=$((kills + 1))
        if [ "$kills" = 3 ]; then
            touch killed
            pause=3 # the rest of many operations
        fi
        "$EXERCISE" neighbours "$disk" --record record --size $((8 << 20)) --check
        serve --namespace "$namespace"
    done
    wait "$load" || { cat load.log; fail 'a block is torn or lost'; }
    echo "measured: $kills kills, $(tail -n 1 load.log)"
    [ "$kills" -ge 3 ] || fail "only $kills kills: nothing is shown"
    detach_fuse
    kill "$target"
    ended "$target" 30
}

# large_blocks SIZE: a loop device with blocks of 4096 bytes (4Kn) becomes $disk
large_blocks() {
    need_loop
    truncate -s "$1" backing
    disk=$(losetup --find --show --sector-size 4096 "$PWD/backing") || skip 'no loop devices with blocks of 4096'
    trap 'losetup -d "$disk"' EXIT
    [ "$(blockdev --getss "$disk")" = 4096 ] || skip 'loop devices have no blocks of 4096'
}

test_exercise_neighbours_on_a_4kn_disk() {
    local disk
    large_blocks 8M
    neighbours "block:$disk,lba=512" "$disk"
    losetup -d "$disk"
}

# The file system has direct I/O for whole blocks of its disk.
thorough+=(exercise_neighbours_in_an_image_on_a_4kn_disk)
test_exercise_neighbours_in_an_image_on_a_4kn_disk() {
    local disk
    large_blocks 64M
    mkfs.ext4 -q "$disk"
    mkdir fs
    mount "$disk" fs
    neighbours "file:$PWD/fs/image,size=8MiB,lba=512" "$PWD/fs/image"
    umount fs
    losetup -d "$disk"
}

# file_systems OPERATIONS...: each on ext4 and on XFS
fuse_file_systems() {
    serve --namespace "file:$PWD/disk.img,size=512MiB"
    attach_fuse --loop --lanes 2
    local fs
    mkdir fs
    for fs in ext4 xfs; do
        "mkfs.$fs" -q "$([ $fs = ext4 ] && echo -F || echo -f)" "$loop"
        mount "$loop" fs
        mkdir fs/tree
        "$EXERCISE" ops fs/file --ops 2000
        "$EXERCISE" ops fs/file --direct --align 4096 --ops 1000
        "$EXERCISE" tree fs/tree
        fstrim fs
        umount fs
        mount "$loop" fs
        "$EXERCISE" tree fs/tree --check
        umount fs
    done
    xfs_repair -n "$loop" >repair.log 2>&1 || { cat repair.log; fail 'xfs_repair is not content'; }
    detach_fuse
}
thorough+=(exercise_fuse_file_systems)
test_exercise_fuse_file_systems() { need_loop && each_way fuse_file_systems; }

# Target and attachment are killed while files are written and synced, three times on one file system.
fuse_synced() {
    serve --namespace "file:$PWD/disk.img,size=256MiB"
    attach_fuse --loop
    mkfs.ext4 -q "$loop"
    mkdir fs
    touch record
    local n files
    for n in 1 2 3; do
        mount "$loop" fs
        files=$(wc -l <record)
        background synced.log "$EXERCISE" synced fs --record record --size 100000
        local load=$pid
        until [ "$(wc -l <record)" -ge $((files + 20)) ]; do
            alive "$load" || { cat synced.log; fail "ended before crash $n"; }
            sleep 0.05
        done
        kill -KILL "$target"
        ended "$target" 60
        kill -TERM "$attached"
        ended "$attached" 30
        ended "$load" 30
        umount -l fs
        serve --namespace "file:$PWD/disk.img"
        attach_fuse --loop
        e2fsck -p "$loop" || [ $? = 1 ]
        mount "$loop" fs
        "$EXERCISE" synced fs --record record --check
        umount fs
        e2fsck -fn "$loop"
    done
    detach_fuse
}
thorough+=(exercise_fuse_synced_files)
test_exercise_fuse_synced_files() { need_loop && each_way fuse_synced; }
