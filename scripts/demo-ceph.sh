#!/bin/bash
# docs/guide/ceph.md from nothing: a Ceph cluster of one machine on the loopback, a user with the least rights, a
# gateway that makes an image, a disk with a file system on it, and a snapshot of it. What was written is read back
# and compared. Everything is removed at the end, also after Ctrl-C. Takes half a minute after the build.
set -euo pipefail
cd "$(dirname "$0")/.."

roadtrain=${ROADTRAIN:-}
cluster=$PWD/tests/ceph/cluster.sh
nqn=nqn.2025-01.io.example:ceph-demo
port=${PORT:-4420}
work=$(mktemp -d)
export ROADTRAIN_RUNTIME_DIR=$work/run CEPH_CONF=$work/etc/ceph.conf
target='' mounted=()

clean_up() {
    trap '' INT TERM HUP
    local place
    for place in "${mounted[@]}"; do
        fsfreeze -u "$place" 2>/dev/null || true # or it could not be unmounted
        ! mountpoint -q "$place" || umount "$place" || umount -l "$place" || true
    done
    [ ! -d "$work/run" ] || "$roadtrain" detach --all --timeout 5 >/dev/null 2>&1 || true
    [ -z "$target" ] || { kill "$target" && wait "$target"; } 2>/dev/null || true
    [ ! -d "$work/ceph" ] || "$cluster" stop "$work/ceph" || true
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { printf '  $ %s\n' "$*"; }
run() { show "$*" && "$@" 2>&1 | sed 's/^/  /'; }

say '1. Build'
[ -n "$roadtrain" ] || {
    run cargo build --release --package roadtrain
    roadtrain=target/release/roadtrain
}

say '2. A Ceph cluster: one monitor and one OSD on the loopback, data in memory'
run "$cluster" start "$work/ceph" --auth cephx
# As /etc/ceph is elsewhere.
mkdir "$work/etc"
# shellcheck disable=SC2016
sed "s|^keyring = .*|keyring = $work/etc/ceph.\$name.keyring|" "$work/ceph/ceph.conf" >"$CEPH_CONF"
cp "$work/ceph/keyring" "$work/etc/ceph.client.admin.keyring"

say '3. A pool, and a user who may do no more than use its images'
run ceph osd pool create disks
run rbd pool init disks
run ceph auth get-or-create client.gate mon 'profile rbd' osd 'profile rbd pool=disks' \
    -o "$work/etc/ceph.client.gate.keyring"
run ceph auth get client.gate

say '4. The gateway: it makes an image and exports it'
serve=("$roadtrain" serve -a 127.0.0.1 -s "$port" -n "$nqn" --namespace 'rbd:disks/a,id=gate,create=1GiB')
show "${serve[*]} &"
: >"$work/target.log"
# Not for Ctrl-C to end: first the file systems go.
setsid "${serve[@]}" >>"$work/target.log" 2>&1 &
target=$!
until grep -q '^ready' "$work/target.log"; do
    kill -0 "$target" 2>/dev/null || { cat "$work/target.log"; exit 1; }
    sleep 0.05
done
sed 's/^/  /' "$work/target.log"
run rbd info disks/a --id gate

# attached NSID KIND [OPTIONS]: in the background; $device is what it is ready as
attached() {
    show "$roadtrain attach -a 127.0.0.1 -s $port -n $nqn --nsid $1 --as $2 ${*:3} --background"
    local ready
    ready=$("$roadtrain" attach -a 127.0.0.1 -s "$port" -n "$nqn" --nsid "$1" --as "$2" "${@:3}" --background)
    echo "  $ready"
    device=$(awk '{print $2}' <<<"$ready")
}

# at_place DEVICE PLACE [OPTIONS]: mounted there
at_place() {
    mkdir "$2"
    mounted=("$2" "${mounted[@]}")
    run mount "${@:3}" "$1" "$2"
}

snapshot() {
    run rbd snap create disks/a@before --id gate
    run "$roadtrain" ctl namespace add rbd:disks/a@before,id=gate
}

file_system() {
    say '5. The host: a file system on the disk, by a loop device over a FUSE file'
    attached 1 "fuse:$work/mnt" --loop
    run mkfs.ext4 -q -F "$device"
    at_place "$device" "$work/data"
    run cp -r crates docs "$work/data"
    say '6. A snapshot, then the disk changes'
    run fsfreeze -f "$work/data"
    snapshot
    run fsfreeze -u "$work/data"
    run rm -r "$work/data/docs"
    attached 2 "fuse:$work/then" --loop
    at_place "$device" "$work/before" -o ro
    say '7. The snapshot is as the disk was, and cannot be written; the disk has changed'
    run diff -r crates "$work/before/crates"
    run diff -r docs "$work/before/docs"
    run diff -r crates "$work/data/crates"
    [ ! -e "$work/data/docs" ]
    show "touch $work/before/file"
    ! touch "$work/before/file" 2>"$work/touch.log" || { echo '  a snapshot was written'; exit 1; }
    sed 's/^/  /' "$work/touch.log"
    run umount "$work/before" "$work/data"
}

block_device() {
    say '5. The host: the disk as an NBD export, under unmodified programs'
    attached 1 "nbd:unix:$work/disk.sock"
    local disk=$device before
    tar -cf "$work/old.img" crates docs
    truncate -s 256M "$work/old.img"
    run qemu-img convert -n -f raw -O raw "$work/old.img" "$disk"
    say '6. A snapshot, then the disk changes'
    run qemu-io -f raw -c flush "$disk"
    snapshot
    run qemu-io -f raw -c 'write -P 7 0 1M' "$disk"
    attached 2 "nbd:unix:$work/before.sock"
    before=$device
    say '7. The snapshot is as the disk was, and cannot be written; the disk has changed'
    run qemu-img compare -f raw -F raw "$work/old.img" "$before"
    run qemu-io -f raw -c 'read -P 7 0 1M' "$disk"
    show "qemu-io -f raw -c 'write 0 4k' $before"
    ! qemu-io -f raw -c 'write 0 4k' "$before" >"$work/write.log" 2>&1 || { echo '  a snapshot was written'; exit 1; }
    sed 's/^/  /' "$work/write.log"
}

if [ "$(id -u)" = 0 ] && [ -c /dev/fuse ] && [ -c /dev/loop-control ]; then
    file_system
else
    echo '  (no file system: that needs root, /dev/fuse and loop devices)'
    block_device
fi

say '8. The end: disks, gateway, cluster'
run "$roadtrain" detach --all
show "kill $target"
kill "$target" && wait "$target" || { cat "$work/target.log"; exit 1; }
target=''
run rbd lock ls disks/a --id gate # nobody has it

say 'Done: the data came back unchanged.'
