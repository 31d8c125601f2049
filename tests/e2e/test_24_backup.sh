# shellcheck shell=bash
# Backups: a full one and increments, by dirty bitmaps of an attachment and by differences of a volume's snapshots,
# restored equal; after a crash a full one again.

# shellcheck source=tests/lib/rpc.sh
. "$top/tests/lib/rpc.sh"

# shake SEED BYTES: random writes, zeroes and discards at $uri, of any length and alignment
shake() {
    local n commands=() offset length
    RANDOM=$1
    for n in 1 2 3 4 5 6; do
        length=$((RANDOM % 3 == 0 ? 512 + RANDOM * 8 : 1 + RANDOM))
        offset=$(((RANDOM * 32768 + RANDOM) % ($2 - length)))
        case $((RANDOM % 6)) in
            0) commands+=(-c "write -z $offset $length") ;;
            1) commands+=(-c "discard $offset $length") ;;
            *) commands+=(-c "write -P $((RANDOM % 255 + 1)) $offset $length") ;;
        esac
    done
    qemu-io -f raw "${commands[@]}" -c flush "$uri" >shake.log 2>&1 || fail "$(cat shake.log)"
    ! grep -q failed shake.log || fail "$(cat shake.log)"
}

# bitmap WORD...: `roadtrain ctl bitmap` of the attachment
bitmap() { "$ROADTRAIN" ctl --id nbd0 bitmap "$@"; }

# dirty: ranges of the bitmap "daily" as lines of offset and length
dirty() {
    nbdinfo --map=qemu:dirty-bitmap:daily --json "$uri" >map.json
    jq -r '.[] | select(.type == 1) | "\(.offset) \(.length)"' map.json
}

# copy_dirty FILE: copies what is dirty into an image
copy_dirty() {
    local offset length
    while read -r offset length; do
        qemu-img convert -n --image-opts \
            "driver=raw,offset=$offset,size=$length,file.driver=nbd,file.server.type=unix,file.server.path=$socket" \
            --target-image-opts "driver=raw,offset=$offset,size=$length,file.driver=qcow2,file.file.driver=file,file.file.filename=$1"
    done < <(dirty)
}

# full FILE: a full backup, which the bitmap demands
full() {
    local number kind
    read -r number kind < <(bitmap start daily)
    [ "$kind" = full ] || fail "$kind instead of a full backup"
    qemu-img convert -f raw -O qcow2 "$uri" "$1"
    bitmap finish daily "$number" >finish.log
}

# increment BASE FILE [SEED]: an increment; with a seed the disk changes before it has finished
increment() {
    local number kind
    read -r number kind < <(bitmap start daily)
    [ "$kind" = increment ] || fail "$kind instead of an increment: $(bitmap list)"
    qemu-img create -q -f qcow2 -b "$1" -F qcow2 "$2"
    copy_dirty "$2"
    [ -z "${3-}" ] || shake "$3" $((64 << 20))
    bitmap finish daily "$number" >finish.log
}

# A full backup and 20 increments; the attachment ends once cleanly, and once by SIGKILL.
thorough+=(backup_bitmap_increments)
test_backup_bitmap_increments() {
    local n base=full.qcow2
    serve --namespace "file:$work/disk.img,size=64MiB"
    attach --dirty-bitmap "daily=$work/daily.bitmap"
    nbdinfo --list --json "$uri" >info.json
    holds info.json '.exports[0].contexts == ["base:allocation", "qemu:dirty-bitmap:daily"]'
    prints '.bitmaps[0] | .valid == false and (.reason | contains("new")) and .dirty_bytes == 67108864' bitmap list --json
    shake 1 $((64 << 20))
    full full.qcow2
    prints '.bitmaps[0] | .valid and .dirty_bytes == 0 and .reason == null and .granularity_bytes == 65536' bitmap list --json
    for n in $(seq 20); do
        shake $((n + 100)) $((64 << 20))
        case $n in
            7)
                end_all "$attached"
                attach --dirty-bitmap "daily=$work/daily.bitmap"
                ;;
            13)
                kill -9 "$attached" && ended "$attached" 10
                attach --dirty-bitmap "daily=$work/daily.bitmap"
                prints '.bitmaps[0] | .valid == false and (.reason | contains("not ended cleanly"))' bitmap list --json
                [ "$(dirty)" = '0 67108864' ] || fail "$(dirty)"
                full again.qcow2
                base=again.qcow2
                continue
                ;;
        esac
        increment "$base" "increment-$n.qcow2" "$([ $((n % 3)) != 0 ] || echo "$n")"
        base=increment-$n.qcow2
    done
    increment "$base" last.qcow2
    qemu-img compare -q -f qcow2 -F raw last.qcow2 "$uri" || fail 'the chain is another disk'
    qemu-img convert -f qcow2 -O raw last.qcow2 restored.img
    nbdcopy --flush "$uri" live.img
    cmp restored.img live.img
    # Ranges that are equal in the increment are not in its file.
    [ "$(stat -c %s last.qcow2)" -lt $((16 << 20)) ] || fail 'an increment has the whole disk'
    qemu-img rebase -f qcow2 -F qcow2 -b again.qcow2 last.qcow2
    qemu-img compare -q -f qcow2 -F raw last.qcow2 restored.img || fail 'the rebased increment is another disk'
    end_all "$attached"
    cmp restored.img disk.img
}

late_write_is_noted() { prints '.bitmaps[0].reason | contains("may still execute")' bitmap list --json; }

# What the bitmap cannot know makes it invalid: another size, another namespace, a write that may come late.
test_backup_bitmap_invalid() {
    serve --namespace "file:$work/disk.img,size=64MiB"
    attach --dirty-bitmap "daily=$work/daily.bitmap" --fast-io-fail-tmo 1
    full full.qcow2
    refused_with 1 'not in progress' bitmap finish daily 1
    refused_with 2 'no bitmap weekly' bitmap start weekly
    ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl namespace resize --nsid 1 96MiB >resize.log
    has_size $((96 << 20))
    prints '.bitmaps[0].reason | contains("resized from 67108864 to 100663296")' bitmap list --json
    full full.qcow2
    kill -9 "$target" && ended "$target" 10
    qemu-io -f raw -c 'write 0 4096' "$uri" >late.log 2>&1 || true
    eventually 10 late_write_is_noted
    end_all "$attached"
    # The reason is kept; another namespace has another bitmap.
    serve --namespace "file:$work/disk.img" --namespace "file:$work/other.img,size=96MiB"
    attach --dirty-bitmap "daily=$work/daily.bitmap"
    late_write_is_noted
    full full.qcow2
    end_all "$attached"
    attach --nsid 2 --dirty-bitmap "daily=$work/daily.bitmap"
    prints '.bitmaps[0].reason | contains("another namespace")' bitmap list --json
    # A file of something else is left alone, and one that is in use as well.
    echo precious >precious
    socket=$work/other.sock
    local again=("$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --as "nbd:unix:$socket" --dirty-bitmap)
    refused_with 1 'no file of a bitmap' "${again[@]}" b=precious
    [ "$(cat precious)" = precious ]
    refused_with 1 'another attachment has it' "${again[@]}" b=daily.bitmap
}

# volume_file NAME: the file of a volume of the store
volume_file() {
    "$ROADTRAIN" ctl --rpc "$rpc" rpc bdev_get_bdevs "{\"name\": \"vols/$1\"}" >volume.json
    echo "$xfs/vols/$(jq -r '.[0].name' volume.json)"
}

# diff FROM [TO]: differences of the volume's snapshots, in diff.json
diff_snapshots() {
    "$ROADTRAIN" ctl --rpc "$rpc" snapshot diff -n "$nqn" --nsid 1 "$@" --json >diff.json 2>diff.log || fail "$(cat diff.log)"
}

# apply SNAPSHOT: puts the ranges of diff.json into restored.img
apply() {
    local file offset bytes kind
    file=$(volume_file "$1")
    while read -r offset bytes kind; do
        if [ "$kind" = zero ]; then
            fallocate -p -o "$offset" -l "$bytes" restored.img
        else
            dd if="$file" of=restored.img bs=1M iflag=skip_bytes,count_bytes oflag=seek_bytes skip="$offset" \
                seek="$offset" count="$bytes" conv=notrunc status=none
        fi
    done < <(jq -r '.ranges[] | "\(.offset) \(.bytes) \(.kind)"' diff.json)
}

# The same by a volume's snapshots. The target is killed in between: snapshots stay, and so do their differences.
test_backup_volume_snapshots() {
    local n
    xfs || skip "no XFS with reflinks here: $(cat xfs.log)"
    port=$(free_port) nqn=nqn.2026-11.test:volume
    managed -a 127.0.0.1 -s "$port" --lvstore "vols=$xfs/vols,size=2GiB"
    c volume create vols/disk 64MiB --thin
    c subsystem add -n "$nqn" --namespace device:vols/disk
    attach
    shake 1 $((64 << 20))
    c volume snapshot vols/disk s0
    cp --sparse=always "$(volume_file s0)" restored.img
    qemu-io -f raw -c 'write -P 7 8388608 4096' -c flush "$uri" >write.log
    diff_snapshots s0
    holds diff.json '.from == "s0" and .to == null and .to_bytes == 67108864 and .from_bytes == 67108864'
    holds diff.json '([.ranges[].bytes] | add) < 2097152 and (.ranges | any(.offset <= 8388608 and .offset + .bytes >= 8392704))'
    for n in $(seq 20); do
        shake $((n + 200)) $((64 << 20))
        if [ "$n" = 9 ]; then
            kill -9 "$target" && ended "$target" 10
            managed -a 127.0.0.1 -s "$port" --lvstore "vols=$xfs/vols,size=2GiB"
        fi
        c volume snapshot vols/disk "s$n"
        diff_snapshots "s$((n - 1))" "s$n"
        apply "s$n"
        cmp restored.img "$(volume_file "s$n")"
    done
    [ "$(jq '[.ranges[].bytes] | add' diff.json)" -lt $((60 << 20)) ] || fail 'an increment has the whole disk'
    # From the first one at once, in pieces of one range, and without anything.
    cp --sparse=always "$(volume_file s0)" restored.img
    diff_snapshots s0 s20
    apply s20
    cmp restored.img "$(volume_file s20)"
    [ "$("$ROADTRAIN" ctl --rpc "$rpc" namespace snapshot diff -n "$nqn" --nsid 1 s0 s20 | tail -n +2 | wc -l)" = "$(jq '.ranges | length' diff.json)" ]
    r roadtrain_diff_snapshots "{\"nqn\": \"$nqn\", \"nsid\": 1, \"from\": \"s0\", \"to\": \"s20\", \"ranges_max\": 1}"
    is '.ranges | length == 1' && is '.next_offset > 0'
    diff_snapshots s20 s20
    holds diff.json '.ranges == []'
    # Without its older snapshot there is no increment: the backup has to be full.
    no 1 'there is no snapshot s99' snapshot diff -n "$nqn" --nsid 1 s99 s20
    no 1 'is no snapshot' snapshot diff -n "$nqn" --nsid 1 disk s20
    wrong -32602 'ranges_max' roadtrain_diff_snapshots "{\"nqn\": \"$nqn\", \"nsid\": 1, \"from\": \"s0\", \"ranges_max\": 0}"
    no 1 'not served here' snapshot diff -n "$nqn" --nsid 9 s0
}
