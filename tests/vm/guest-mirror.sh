# shellcheck shell=bash
# Runs in the guest: md RAID 1 over two attachments of two targets, by the commands of the guide in /share/blocks, while
# targets are killed and started again.
set -eu

export LD_LIBRARY_PATH=/share/lib ROADTRAIN_RUNTIME_DIR=/tmp/runtime
md=/dev/md0
mkdir -p /tmp/runtime
modprobe -a ublk_drv raid1

say() { echo "== $(cut -d' ' -f1 /proc/uptime) $*"; }
failed() { echo "failed: $*"; cat /proc/mdstat; tail -n 20 /tmp/*.log; exit 1; }
await() { # SECONDS COMMAND...
    local n
    for ((n = 0; n < $1 * 10; n++)); do "${@:2}" && return 0; sleep 0.1; done
    failed "never: ${*:2}"
}
roadtrain() { /share/roadtrain "$@"; }
block() { # NAME: the commands of the page, with the addresses of this machine
    # The status of --wait is 1 if there was nothing to wait for.
    sed 's/^mdadm --wait .*/& || true/; s/-a 192\.0\.2\.7/-a 127.0.0.1 -s 4420/; s/-a 192\.0\.2\.8/-a 127.0.0.1 -s 4421/' "/share/blocks/$1" >/tmp/commands
    # shellcheck source=/dev/null
    . /tmp/commands
}
serve() { # a|b
    local port=4420
    [ "$1" = a ] || port=4421
    : >"/tmp/$1.log"
    /share/roadtrain serve -a 127.0.0.1 -s $port -n "nqn.2025-01.io.example:$1" --id "target-$1" \
        --namespace "file:/tmp/$1.img,size=64MiB" >>"/tmp/$1.log" 2>&1 &
    eval "target_$1=$!"
    await 30 grep -q ^ready "/tmp/$1.log"
}
kill_target() { # a|b
    local process
    eval "process=\$target_$1"
    kill -KILL "$process"
    wait "$process" || true
}
is_connected() { roadtrain status "$1" >/tmp/status.log 2>&1; }
has_legs() { grep -qF "[$1]" /proc/mdstat; }
# write SEED: other data in the whole mirror
write() {
    size=$(blockdev --getsize64 $md)
    fio --name=write --filename=$md --rw=write --bs=256k --direct=1 --verify=crc32c --do_verify=0 --randseed="$1" \
        --verify_pattern="0x$1" --verify=pattern --size="$size" --output=/tmp/fio-write.log --allow_file_create=0
}
check() {
    fio --name=check --filename=$md --rw=read --bs=64k --direct=1 --verify=pattern --verify_pattern="0x$1" --verify_fatal=1 \
        --size="$size" --output=/tmp/fio-check.log --allow_file_create=0 || failed "the mirror has other data than $1"
}
reads() { awk '{print $1}' "/sys/block/$1/stat"; }

say 'a mirror of two legs'
serve a
serve b
block attach
block create
has_legs UU || failed 'two legs'
mdadm --wait $md || true # 1: there was nothing to wait for
mdadm --detail $md | grep -q 'Intent Bitmap : Internal'
[ "$(mdadm --detail $md | grep -c 'failfast')" = 2 ] || failed 'failfast'
write 11111111
check 11111111

say 'a target is killed: the leg fails, the mirror goes on'
kill_target b
began=$(cut -d. -f1 /proc/uptime)
write 22222222
has_legs U_ || failed 'one leg'
took=$(($(cut -d. -f1 /proc/uptime) - began))
[ $took -ge 4 ] || failed "requests waited for $took s only"
rc=0
roadtrain status >/tmp/status.log || rc=$?
[ $rc = 1 ] || failed "status says nothing of the lost target: $rc"
check 22222222

say 'it is back with old data: nothing of it is read'
serve b
await 60 is_connected leg-b
before=$(reads ublkb1)
check 22222222
[ "$(reads ublkb1)" = "$before" ] || failed 'the failed leg is read'
# The old data is there.
dd if=/dev/ublkb1 bs=1M skip=32 count=1 iflag=direct 2>/dev/null | od -An -tx1 -N4 | grep -q '11 11 11 11' || failed 'the leg has not the old data'

say 'the leg is taken again, while the mirror is written'
write 33333333 &
writer=$!
block repair
wait $writer
has_legs UU || failed 'two legs again'
check 33333333

say 'the other target is killed: the repaired leg has all'
kill_target a
check 33333333
has_legs _U || failed 'the leg of a'
write 44444444

say 'the host starts again: the stale leg is left out'
mdadm --stop $md
serve a
await 60 is_connected leg-a
block assemble
has_legs _U || failed 'the stale leg is in the mirror'
check 44444444
# It is not in the mirror, so there is nothing to remove.
sed '/--remove/d; s/ublkb1/ublkb0/g' /share/blocks/repair >/share/blocks/repair-a
block repair-a
has_legs UU || failed 'two legs at the end'
check 44444444

say 'each target is killed once more'
for leg in a b; do
    kill_target $leg
    write "5555555$leg"
    serve $leg
    device=ublkb0
    [ $leg = a ] || device=ublkb1
    await 60 is_connected "leg-$leg"
    sed "s/ublkb1/$device/g" /share/blocks/repair >/share/blocks/again
    block again
    has_legs UU || failed "leg $leg"
    check "5555555$leg"
done
block end
kill "$target_a" "$target_b"
wait "$target_a" "$target_b" || true
say 'both legs have the same'
cmp /tmp/a.img /tmp/b.img 2097152 2097152 || failed 'the legs differ'
rmmod raid1 ublk_drv 2>/dev/null || true
