# shellcheck shell=bash
# Unmodified NBD clients use a remote namespace, and find in it what they wrote.

# An image with data, repetition and holes: 64 MiB.
make_image() {
    truncate -s 64M "$1"
    dd if=/dev/urandom of="$1" bs=1M count=20 seek=4 conv=notrunc status=none
    dd if="$ROADTRAIN" of="$1" bs=1M seek=40 count=8 conv=notrunc status=none
}

test_nbd_info() {
    serve --namespace mem:256MiB
    attach
    nbdinfo --json "$uri" >info.json
    holds info.json '.exports[0]["export-size"] == 268435456'
    holds info.json '.exports[0] | ."can_flush" and ."can_fua" and ."can_trim" and ."can_zero" and ."can_multi_conn"'
    holds info.json '.exports[0]["is_read_only"] == false'
    [ "$(nbdinfo --size "$uri")" = 268435456 ]
}

test_nbd_fio_verify() {
    serve --namespace mem:256MiB
    attach
    local bs
    for bs in 512 4k 64k 1M; do
        fio --name=verify --ioengine=nbd --uri="$uri" --rw=randwrite --bs="$bs" --size=32M --io_size=8M \
            --iodepth=32 --verify=crc32c --verify_fatal=1 --end_fsync=1 --eta=never --output="fio-$bs.log"
    done
    fio --name=mix --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=512-128k --size=64M --iodepth=16 \
        --verify=crc32c --verify_fatal=1 --eta=never --output=fio-mix.log
}

test_nbd_fio_verify_4kn_file() {
    serve --namespace "file:$work/disk.img,size=256MiB,lba=4096" --policy i10
    attach --policy i10
    fio --name=verify --ioengine=nbd --uri="$uri" --rw=randrw --bs=4k --size=32M --iodepth=32 \
        --verify=crc32c --verify_fatal=1 --fsync=64 --eta=never --output=fio.log
}

# jobs N SIZES: N clients at once write and verify 256 MiB / N each, in blocks of these sizes
jobs() {
    local size=$((256 / $1))
    fio --name=jobs --ioengine=nbd --uri="$uri" --rw=randrw --numjobs="$1" --size="${size}M" \
        --offset_increment="${size}M" --io_size=16M --iodepth=8 --verify=crc32c --verify_fatal=1 \
        --bssplit="$2" --group_reporting --eta=never --output="fio-jobs-$1.log"
}

test_nbd_fio_verify_1_to_16_jobs() {
    serve --namespace mem:256MiB
    attach --lanes 2
    local n
    for n in 1 4 16; do jobs "$n" 512/20:4k/40:7k/20:64k/10:1M/10; done
}

test_nbd_fio_verify_by_tcp() {
    serve --namespace "file:$work/disk.img,size=256MiB,lba=4096"
    attach_tcp --lanes 2
    jobs 8 4k/40:12k/20:64k/20:1M/20
}

# The clients of one export see each other's writes once flushed (multi-conn).
test_nbd_several_connections() {
    serve --namespace mem:256MiB
    attach
    fio --ioengine=nbd --uri="$uri" --rw=randrw --bs=4k --size=16M --iodepth=8 --verify=crc32c \
        --verify_fatal=1 --eta=never --output=fio.log \
        --name=a --offset=0 --name=b --offset=16M --name=c --offset=32M --name=d --offset=48M
}

# so_many N: operations of a thorough run; a normal one has a fourth of them, and OPS says another number
so_many() { if [ "${THOROUGH-}" = 1 ]; then echo "${OPS-$1}"; else echo "${OPS-$(($1 / 4))}"; fi; }

# Reads, writes, holes and mappings at any block, by threads that take turns on them, through nbdfuse (which
# refuses parts of blocks itself).
test_nbd_random_operations() {
    [ -c /dev/fuse ] && command -v nbdfuse >/dev/null || skip 'needs /dev/fuse and nbdfuse'
    [ "$(id -u)" = 0 ] || skip 'needs root, for umount'
    serve --namespace "file:$work/disk.img,size=64MiB,lba=4096"
    attach
    mkdir mnt
    background nbdfuse.log nbdfuse "$work/mnt/disk" "$uri"
    local fuse=$pid n
    for n in $(seq 100); do [ ! -e mnt/disk ] || break; sleep 0.1; done
    "$EXERCISE" ops mnt/disk --fixed --align 4096 --ops "$(so_many 3000)"
    "$EXERCISE" ops mnt/disk --fixed --align 4096 --direct --jobs 4 --stripe 12288 --ops "$(so_many 2000)"
    umount mnt
    ended "$fuse" 10
}

test_nbd_qemu_img_round_trip() {
    make_image disk.raw
    serve --namespace "file:$work/target.img,size=64MiB"
    attach
    qemu-img convert -n -f raw -O raw disk.raw "$uri"
    qemu-img compare -f raw -F raw disk.raw "$uri"
    qemu-img convert -f raw -O qcow2 "$uri" back.qcow2
    qemu-img compare -f raw -F qcow2 disk.raw back.qcow2
    # And what lies on the target's own disk is the image.
    cmp disk.raw target.img
}

test_nbd_nbdcopy_round_trip() {
    make_image disk.raw
    serve --namespace mem:64MiB
    attach
    nbdcopy --connections=4 disk.raw "$uri"
    nbdcopy --connections=4 "$uri" back.raw
    [ "$(sha256sum <disk.raw)" = "$(sha256sum <back.raw)" ]
}

# tells_holes: whether the file system of the folder does; a hole may be as large as 64 KiB
tells_holes() {
    truncate -s 1M probe
    dd if=/dev/urandom of=probe bs=64k seek=8 count=1 conv=notrunc status=none
    [ "$(qemu-img map --output=json -f raw probe | jq -c '[.[].data]')" = '[false,true,false]' ]
}

# map: block status for the client: offset, length and kind of each extent
map() { nbdinfo --map --json "$uri" | jq -c '[.[] | [.offset, .length, .type]]'; }

# Block status is what the target's file system says; discards make holes, and a copy leaves them out.
test_nbd_block_status_of_a_sparse_file() {
    tells_holes || skip 'the file system tells no holes'
    local lba m=1048576
    for lba in 512 4096; do
        rm -f disk.img
        truncate -s 64M disk.img
        port=$(free_port)
        serve --namespace "file:$work/disk.img,lba=$lba"
        attach
        [ "$(map)" = "[[0,$((64 * m)),3]]" ]
        qemu-io -f raw -c 'write -P 1 1M 1M' -c 'write -P 2 32M 64k' -c 'write -P 3 67043328 64k' "$uri" >io.log
        [ "$(map)" = "[[0,$m,3],[$m,$m,0],[$((2 * m)),$((30 * m)),3],[$((32 * m)),65536,0],$(
        )[33619968,33423360,3],[67043328,65536,0]]" ] || fail "$(map)"
        # What was written and discarded is a hole again, and zeroes that may be one are one.
        qemu-io -f raw -c 'discard 1M 512k' -c 'write -z -u 32M 64k' "$uri" >io.log
        [ "$(map)" = "[[0,1572864,3],[1572864,524288,0],[$((2 * m)),64946176,3],[67043328,65536,0]]" ] ||
            fail "$(map)"
        qemu-img map --output=json -f raw "$uri" >there.json
        qemu-img map --output=json -f raw disk.img >here.json
        cmp <(jq -c '.[] | [.start, .length, .data]' here.json) \
            <(jq -c '.[] | [.start, .length, .data]' there.json)
        nbdcopy "$uri" copy.img
        cmp copy.img disk.img
        kill "$attached" "$target"
        ended "$attached" 60
        ended "$target" 60
    done
}

# A disk of 512 GiB that has 1 MiB is copied in no time: what is not allocated is not read.
test_nbd_copy_leaves_holes_out() {
    tells_holes || skip 'the file system tells no holes'
    truncate -s 512G disk.img 2>/dev/null || skip 'the file system has no such files'
    serve --namespace "file:$work/disk.img"
    attach --lanes 2
    qemu-io -f raw -c 'write -P 7 300G 1M' "$uri" >io.log
    timeout 60 nbdcopy --connections=4 "$uri" null:
    [ "$(nbdinfo --map --totals "$uri" | awk '$4 == "data" {print $1}')" = 1048576 ]
}

# A store in memory has no block status, so all blocks count as data.
test_nbd_block_status_of_memory() {
    serve --namespace mem:64MiB
    attach
    [ "$(map)" = '[[0,67108864,0]]' ]
}

# Digests on both the header and the data of every PDU.
test_nbd_through_digests() {
    make_image disk.raw
    serve --namespace mem:64MiB
    attach --hdr-digest --data-digest
    nbdcopy disk.raw "$uri"
    nbdcopy "$uri" back.raw
    cmp disk.raw back.raw
}

# Discarded ranges and zeroes become holes in the target's file, and read as zeroes.
test_nbd_trim_and_zeroes_punch_holes() {
    serve --namespace "file:$work/target.img,size=64MiB"
    attach
    dd if=/dev/urandom of=full.raw bs=1M count=64 status=none
    nbdcopy full.raw "$uri"
    local before after
    before=$(du -k target.img | cut -f1)
    qemu-io -f raw -c 'discard 0 16M' -c 'write -z -u 16M 16M' -c 'flush' "$uri"
    after=$(du -k target.img | cut -f1)
    [ "$after" -le $((before - 30 * 1024)) ] || fail "$before KiB before, $after after"
    dd if=/dev/zero of=full.raw bs=1M count=32 conv=notrunc status=none
    qemu-img compare -f raw -F raw full.raw "$uri"
}

test_nbd_read_only_namespace() {
    make_image disk.raw
    serve --namespace "file:$work/disk.raw,ro"
    attach
    nbdinfo --is read-only "$uri"
    nbdcopy "$uri" back.raw
    cmp disk.raw back.raw
    ! qemu-io -f raw -c 'write 0 4k' "$uri" || fail 'a write succeeded'
}

# Far more data in flight than buffers: clients wait, and memory stays within its bound.
test_nbd_within_its_buffers() {
    serve --namespace mem:256MiB
    attach --buffers 36MiB
    fio --ioengine=nbd --uri="$uri" --rw=randwrite --bs=1M --size=64M --iodepth=32 --verify=crc32c \
        --verify_fatal=1 --eta=never --output=fio.log \
        --name=a --offset=0 --name=b --offset=64M --name=c --offset=128M
    local peak
    peak=$(awk '/^VmHWM/ {print $2}' "/proc/$attached/status")
    [ "$peak" -le $((80 * 1024)) ] || fail "$peak KiB of memory with 36 MiB of buffers"
}

# Who connects sees the new size; who is connected may use it; a namespace that is gone is refused.
test_nbd_follows_the_namespace() {
    local path="$work/first.img"
    configure "file:$path,size=64MiB" mem:32MiB
    serve_configured
    attach
    has_size 67108864
    verified_load_on_nbd
    configure "file:$path,size=128MiB" mem:32MiB
    kill -HUP "$target"
    has_size 134217728
    qemu-io -f raw -c 'write -P 5 127M 1M' -c 'read -P 5 127M 1M' "$uri"
    moves_data
    verified_load_ends
    # Only the second namespace is left.
    awk '/^\[\[subsystem.namespace\]\]/ { n += 1 } n != 1' target.toml >target.toml.new
    mv target.toml.new target.toml
    kill -HUP "$target"
    has_size ''
    configure "file:$path" mem:32MiB
    kill -HUP "$target"
    has_size 134217728
    # Another one under its number is not taken for it, though it has its size.
    configure mem:128MiB mem:32MiB
    kill -HUP "$target"
    has_size ''
    until_line attach.log 'another one has its NSID' "$attached"
    has_size ''
}
