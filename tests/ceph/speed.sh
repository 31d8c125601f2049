#!/bin/bash
# speed.sh [PROGRAM]: how much of librbd's own speed hosts see through a gateway, on a cluster of this machine with
# memory OSDs. fio's rbd engine and `roadtrain bench` by a gateway take turns; with qemu-storage-daemon and its rbd driver
# installed its NBD export takes turns, too. Prints IOPS, their ratio, and processor time for each I/O. Takes three
# minutes: SECONDS_EACH=2 ROUNDS=2.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
roadtrain=${1:-$here/../../target/release/roadtrain}
seconds=${SECONDS_EACH:-2} rounds=${ROUNDS:-2}
work=$(mktemp -d)
export ROADTRAIN_RUNTIME_DIR=$work/run
started=()

clean_up() {
    local process
    for process in "${started[@]}"; do kill "$process" && wait "$process" || true; done 2>/dev/null
    [ ! -d "$work/ceph" ] || "$here/cluster.sh" stop "$work/ceph"
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT

# cpu_us PID: what it has used so far
cpu_us() {
    local fields
    read -r -a fields <<<"$(sed 's/^.*) //' "/proc/$1/stat")"
    echo $(((fields[11] + fields[12]) * 1000000 / $(getconf CLK_TCK)))
}

# by_librbd RW SIZE DEPTH: "IOPS CPU-us", fio's processor time with that of librbd's threads
by_librbd() {
    local TIMEFORMAT='%U %S'
    { time fio --name=x --ioengine=rbd --clientname=admin --pool=rbd --rbdname=fio --rw="$1" --bs="$2" --iodepth="$3" \
        --time_based --runtime="$seconds" --output-format=json >"$work/fio.json" 2>/dev/null; } 2>"$work/time"
    jq -r --argjson used "$(awk '{print ($1 + $2) * 1e6}' "$work/time")" '.jobs[0]
        | (.read.total_ios + .write.total_ios) as $n
        | "\(.read.iops + .write.iops | floor) \($used / $n | floor)"' "$work/fio.json"
}

# by_gateway RW SIZE DEPTH: "IOPS CPU-us", the gateway's processor time
by_gateway() {
    local before after
    before=$(cpu_us "$gateway")
    "$roadtrain" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw "$1" --bs "$2" --depth "$3" --lanes 1 \
        --seconds "$seconds" --json >"$work/bench.json"
    after=$(cpu_us "$gateway")
    jq -r --argjson used $((after - before)) '"\(.iops | floor) \($used / .requests | floor)"' "$work/bench.json"
}

# by_qemu RW SIZE DEPTH: "IOPS CPU-us", the daemon's processor time
by_qemu() {
    local before after
    before=$(cpu_us "$qemu")
    fio --name=x --ioengine=nbd --uri="nbd+unix:///qemu?socket=$work/qemu.sock" --rw="$1" --bs="$2" --iodepth="$3" \
        --time_based --runtime="$seconds" --output-format=json >"$work/fio.json" 2>/dev/null
    after=$(cpu_us "$qemu")
    jq -r --argjson used $((after - before)) '.jobs[0] | (.read.total_ios + .write.total_ios) as $n
        | "\(.read.iops + .write.iops | floor) \($used / $n | floor)"' "$work/fio.json"
}

"$here/cluster.sh" start "$work/ceph" >/dev/null
# A gateway has none: what it has answered is on all replicas.
printf '[client]\nrbd cache = false\n' >>"$work/ceph/ceph.conf"
export CEPH_CONF=$work/ceph/ceph.conf
images=(fio gateway)
if command -v qemu-storage-daemon >/dev/null && ls /usr/lib/*/qemu/block-rbd.so >/dev/null 2>&1; then images+=(qemu); fi
for image in "${images[@]}"; do
    rbd create "rbd/$image" --size 256M
    fio --name=fill --ioengine=rbd --clientname=admin --pool=rbd --rbdname="$image" --rw=write --bs=1M --iodepth=8 \
        --output="$work/fill.log"
done
nqn=nqn.2026-11.test:speed port=$((20000 + RANDOM % 10000))
"$roadtrain" serve -a 127.0.0.1 -s $port -n $nqn --namespace rbd:rbd/gateway >"$work/gateway.log" 2>&1 &
gateway=$!
started+=("$gateway")
for ((n = 0; n < 200; n++)); do
    ! grep -q ^ready "$work/gateway.log" || break
    sleep 0.05
done
if [ ${#images[@]} = 3 ]; then
    qemu-storage-daemon --blockdev driver=rbd,node-name=d,pool=rbd,image=qemu \
        --nbd-server addr.type=unix,addr.path="$work/qemu.sock" \
        --export type=nbd,id=e,node-name=d,name=qemu,writable=on >"$work/qemu.log" 2>&1 &
    qemu=$!
    started+=("$qemu")
    sleep 1
else
    echo 'qemu-storage-daemon with rbd is not here (qemu-system-common, qemu-block-extra)'
fi

echo 'what            | librbd: IOPS, us of CPU | gateway: IOPS, us of CPU, of librbd | others: IOPS, us of CPU'
for point in randread:4k:1 randread:4k:32 randread:4k:128 randread:128k:32 randwrite:4k:1 randwrite:4k:32 \
    randwrite:4k:128 randwrite:128k:32; do
    IFS=: read -r rw size depth <<<"$point"
    for name in librbd gate qemu; do : >"$work/$name.found"; done
    for ((round = 0; round < rounds; round++)); do
        by_librbd "$rw" "$size" "$depth" >>"$work/librbd.found"
        by_gateway "$rw" "$size" "$depth" >>"$work/gate.found"
        [ ${#images[@]} != 3 ] || by_qemu "$rw" "$size" "$depth" >>"$work/qemu.found"
    done
    mean() { awk '{i += $1; c += $2; n++} END {if (n) printf "%d %d", i / n, c / n; else printf "- -"}' "$1"; }
    read -r one one_cpu <<<"$(mean "$work/librbd.found")"
    read -r two two_cpu <<<"$(mean "$work/gate.found")"
    printf '%-15s | %s, %s | %s, %s, %s | %s\n' "$rw $size $depth" "$one" "$one_cpu" "$two" "$two_cpu" \
        "$(awk "BEGIN {printf \"%.2f\", $two / $one}")" "$(mean "$work/qemu.found")"
done
echo "at depth 1: latency is 1e6 / IOPS us"
