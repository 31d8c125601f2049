#!/bin/bash
# The main job on real data: exports a file over NVMe/TCP, attaches it as a local block device, lets
# unmodified programs and a file system use it, verifies what they wrote, and measures batching policies.
# Everything is removed at the end. Takes about 40 seconds after the build.
set -euo pipefail
cd "$(dirname "$0")/.."

SECONDS_EACH=${SECONDS_EACH:-1}
roadtrain=target/release/roadtrain
nqn=nqn.2025-01.io.example:demo
port=${PORT:-4420}
work=$(mktemp -d)
export ROADTRAIN_RUNTIME_DIR=$work/run
target='' attached=''

clean_up() {
    local p
    ! mountpoint -q "$work/fs" 2>/dev/null || umount -l "$work/fs"
    [ ! -d "$work/run" ] || "$roadtrain" detach --all --timeout 5 >/dev/null 2>&1 || true
    for p in $attached $target; do
        kill "$p" 2>/dev/null && wait "$p" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean_up EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { printf '  $ %s\n' "$*"; }
run() { show "$*" && "$@"; }
sum() { sha256sum "$1" | cut -c1-64; }

# start VARIABLE LOG COMMAND...: in the background, until it says that it is ready
start() {
    local variable=$1 log=$2
    shift 2
    show "$* &"
    "$@" >"$log" 2>&1 &
    printf -v "$variable" %s $!
    until grep -q '^ready' "$log"; do
        kill -0 "${!variable}" 2>/dev/null || { cat "$log"; exit 1; }
        sleep 0.05
    done
    sed 's/^/  /' "$log"
}

say '1. Build'
run cargo build --release --package roadtrain

say '2. A disk image of real files: this source tree and the program, 256 MiB'
tar -cf "$work/files.tar" --exclude=./target --exclude=./fuzz/target --exclude=./.git .
cat "$work/files.tar" "$roadtrain" >"$work/image.raw"
truncate -s 256M "$work/image.raw"
ls -lsh "$work/image.raw" | sed 's/^/  /'

say '3. Export a sparse file over NVMe/TCP, find it, attach it as a block device'
start target "$work/target.log" "$roadtrain" serve -a 127.0.0.1 -s "$port" -n "$nqn" \
    --namespace "file:$work/disk.img,size=256MiB"
run "$roadtrain" discover -t tcp -a 127.0.0.1 -s "$port"
start attached "$work/attach.log" "$roadtrain" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" \
    --as "nbd:unix:$work/nbd.sock"
uri="nbd+unix:///?socket=$work/nbd.sock"

say '4. Unmodified programs use it'
run qemu-img convert -n -f raw -O raw "$work/image.raw" "$uri"
run qemu-img compare -f raw -F raw "$work/image.raw" "$uri"
run nbdcopy "$uri" "$work/back.raw"
printf '  written   %s\n  read back %s\n' "$(sum "$work/image.raw")" "$(sum "$work/back.raw")"
[ "$(sum "$work/image.raw")" = "$(sum "$work/back.raw")" ]
run fio --name=verify --ioengine=nbd --uri="$uri" --rw=randrw --bs=4k --size=64M --iodepth=32 \
    --verify=crc32c --verify_fatal=1 --verify_state_save=0 --eta=never --output="$work/fio.log"
grep -E 'err=|(READ|WRITE):' "$work/fio.log" | sed 's/^/  /'
kill "$attached" && wait "$attached"
attached=''

say '5. A file system on it: a loop device over a FUSE file, in the background'
why_no_file_system() {
    [ "$(id -u)" = 0 ] || { echo 'needs root'; return; }
    [ -c /dev/fuse ] || { echo 'needs /dev/fuse'; return; }
    [ -c /dev/loop-control ] || echo 'needs loop devices'
}
file_system() {
    mkdir "$work/fs"
    run "$roadtrain" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --as "fuse:$work/mnt" --loop --background |
        tee "$work/attach.log"
    local device
    device=$(sed -n 's/^ready \([^ ]*\).*/\1/p' "$work/attach.log")
    run mkfs.ext4 -q -F "$device"
    run mount "$device" "$work/fs"
    run cp -r crates docs "$work/fs"
    run umount "$work/fs"
    run mount "$device" "$work/fs"
    run diff -r crates "$work/fs/crates" && run diff -r docs "$work/fs/docs"
    run "$roadtrain" list
    run umount "$work/fs"
    run "$roadtrain" detach --all
}
reason=$(why_no_file_system)
if [ -n "$reason" ]; then echo "  SKIPPED: $reason"; else file_system; fi
kill "$target" && wait "$target"
target=''

say "6. Batching: 4 KiB random reads from memory, target on core 1, host on core 0, loopback, $SECONDS_EACH s each"
# measure NAME DEPTH OPTIONS...
measure() {
    local name=$1 depth=$2
    shift 2
    "$roadtrain" bench --rw randread --bs 4k --depth "$depth" --lanes 1 --seconds "$SECONDS_EACH" --cores 0 \
        --target-cores 1 --namespace mem:1GiB --json "$@" >"$work/bench.json"
    jq -r --arg name "$name" --arg depth "$depth" '
        def round_to($d): . * $d | round / $d;
        [$name, $depth, (.iops | round), .latency.mean_us, .latency.p99_us, .requests_per_caravan, .sends_per_io,
         ((.host_cpu_seconds + .target_cpu_seconds) * 1e6 / (.iops * '"$SECONDS_EACH"'))]
        | [.[0], .[1], .[2], (.[3, 4, 5, 6, 7] | round_to(100))] | @tsv' "$work/bench.json" |
        awk -F'\t' '{printf "  %-22s %5d %10d %9.1f %9.1f %10.1f %9.2f %10.2f\n", $1, $2, $3, $4, $5, $6, $7, $8}'
}
printf '  %-22s %5s %10s %9s %9s %10s %9s %10s\n' policy depth IOPS 'mean us' 'p99 us' 'req/send' 'sends/IO' 'CPU-us/IO'
for depth in 1 8 32 128; do
    measure 'one request per send' $depth --policy none --caravan-requests 1
    measure 'none' $depth --policy none --target-policy none
    measure 'i10' $depth --policy i10 --target-policy i10
    measure 'auto, the default' $depth
done

say 'Done: the data came back unchanged.'
