# shellcheck shell=bash
# Runs in the guest: a LUKS volume below our target, by the commands of the guide in /share/blocks, with the kernel's host.
set -eu

export LD_LIBRARY_PATH=/share/lib ROADTRAIN_RUNTIME_DIR=/tmp/runtime
nqn=nqn.2025-01.io.example:disk
mkdir -p /tmp/runtime /tmp/keys
modprobe -a nvme-tcp loop dm_crypt xts

say() { echo "== $(cut -d' ' -f1 /proc/uptime) $*"; }
failed() { echo "failed: $*"; tail -n 20 /tmp/*.log; exit 1; }
await() { # SECONDS COMMAND...
    local n
    for ((n = 0; n < $1 * 10; n++)); do "${@:2}" && return 0; sleep 0.1; done
    failed "never: ${*:2}"
}
roadtrain() { /share/roadtrain "$@"; }
# Emulated processors take minutes for the derivation of keys that slows down an attacker.
cryptsetup() {
    local options=()
    [ "$1" != luksFormat ] || options=(--batch-mode --pbkdf pbkdf2 --pbkdf-force-iterations 1000)
    command cryptsetup "$@" ${options[@]+"${options[@]}"}
}
block() { # NAME: the commands of the page, with the disk, key and address of this machine
    sed "s|/etc/roadtrain/disk.key|/tmp/keys/disk.key|; s|/dev/sdb|$disk|; s|-a 192\.0\.2\.7|-a 127.0.0.1 -s 4420|" \
        "/share/blocks/$1" >/tmp/commands
    # shellcheck source=/dev/null
    . /tmp/commands
}
serve() {
    : >/tmp/target.log
    block serve >>/tmp/target.log 2>&1 &
    target=$!
    await 30 grep -q ^ready /tmp/target.log
}
# end_target SIGNAL: also the program, which is a child of this script's child
end_target() {
    local process
    process=$(cat /proc/$target/task/$target/children)
    kill "-$1" ${process:-$target}
    wait $target || true
    await 10 eval '! [ -e /proc/'"${process:-$target}"' ]'
}
is_block() { [ -b "$1" ]; }
connect() {
    nvme connect -t tcp -a 127.0.0.1 -s 4420 -n $nqn --ctrl-loss-tmo=600
    await 20 is_block /dev/nvme0n1
}
pattern() { fio --name=pattern --filename=/dev/nvme0n1 --direct=1 --bs=64k --size=16M --verify=pattern \
    --verify_pattern='"plain text"' --output=/tmp/fio.log --allow_file_create=0 "$@"; }

truncate -s 64M /tmp/disk.img
disk=$(losetup -f)
losetup "$disk" /tmp/disk.img
(umask 077 && head -c 64 /dev/urandom >/tmp/keys/disk.key && head -c 64 /dev/urandom >/tmp/keys/wrong)
say 'format, open, serve'
block format
block open
serve
connect
[ "$(cat /sys/block/nvme0n1/queue/logical_block_size)" = 4096 ] || failed 'blocks of 4096 bytes'
wwid=$(cat /sys/block/nvme0n1/wwid)
pattern --rw=write --do_verify=0 --end_fsync=1
pattern --rw=read --verify_fatal=1
say 'nothing on the disk is readable'
sync
! grep -q 'plain text' /tmp/disk.img || failed 'plain text on the disk'
grep -q 'plain text' /dev/mapper/disk || failed 'the volume has no plain text: this test finds nothing'
say 'deallocated blocks are released'
used=$(stat -c %b /tmp/disk.img)
blkdiscard -o 8M -l 8M /dev/nvme0n1
sync
[ "$(stat -c %b /tmp/disk.img)" -lt $((used - 12000)) ] || failed "nothing is released: $used, now $(stat -c %b /tmp/disk.img)"
pattern --rw=write --do_verify=0 --end_fsync=1
say 'the target is killed, the volume closed and opened'
end_target KILL
block close
! command cryptsetup open --type luks2 --key-file /tmp/keys/wrong "$disk" disk 2>/tmp/wrong.log || failed 'another key opens it'
block open
serve
pattern --rw=read --verify_fatal=1
[ "$(cat /sys/block/nvme0n1/wwid)" = "$wwid" ] || failed 'another identity'
say 'the disk grows'
before=$(cat /sys/block/nvme0n1/size)
truncate -s 96M /tmp/disk.img
losetup -c "$disk"
block grow
is_larger() { [ "$(cat /sys/block/nvme0n1/size)" = $((before + 65536)) ]; }
await 20 is_larger
pattern --rw=read --verify_fatal=1
say 'close refuses while it is served'
rc=0
block close 2>/tmp/close.log || rc=$?
[ $rc != 0 ] || failed 'it was closed under the target'
nvme disconnect-all
end_target TERM
block close
losetup -d "$disk"
rmmod dm_crypt 2>/dev/null || true
