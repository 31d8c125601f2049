#!/bin/bash
# speed.sh [PROGRAM]: how much of librbd's own speed hosts see through a gateway, on a cluster of this machine with
# memory OSDs. fio's rbd engine and `roadtrain bench` by a gateway take turns. Where they are installed two other gateways
# take turns, too: qemu-storage-daemon with its rbd driver (over NBD) and tgt with its rbd backing store (over iSCSI, random
# reads only: iscsi-perf writes nothing). Prints IOPS, their ratio, and processor time for each I/O.
#
# Everything shares the cores of this machine, the cluster as well. So what host and target need for an I/O themselves is
# missing at the cluster: `hop` is that time, measured with blocks in memory, and `at most` the ratio that it
# leaves when all cores are busy. Takes ten minutes: SECONDS_EACH=2 ROUNDS=3.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
roadtrain=${1:-$here/../../target/release/roadtrain}
seconds=${SECONDS_EACH:-2} rounds=${ROUNDS:-3}
work=$(mktemp -d)
export ROADTRAIN_RUNTIME_DIR=$work/run
started=()

clean_up() {
    local process
    for process in "${started[@]}"; do
        kill "$process" || continue
        timeout 5 tail --pid="$process" -f /dev/null || kill -KILL "$process"  # tgtd may not handle it
        wait "$process" || true
    done 2>/dev/null
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
    sed -i -n '/^{/,$p' "$work/fio.json" # before that it says that it has connected
    jq -r --argjson used $((after - before)) '.jobs[0] | (.read.total_ios + .write.total_ios) as $n
        | "\(.read.iops + .write.iops | floor) \($used / $n | floor)"' "$work/fio.json"
}

# by_tgt RW SIZE DEPTH: "IOPS CPU-us", the daemon's processor time
by_tgt() {
    local before after iops size
    [ "$1" = randread ] || return 0
    size=$(numfmt --from=iec "${2^^}")
    before=$(cpu_us "$tgt")
    iops=$(iscsi-perf -r -b $((size / 512)) -m "$3" -t "$seconds" "iscsi://127.0.0.1:$iscsi_port/$iqn/1" 2>/dev/null |
        tr '\r' '\n' | sed -n 's/.*iops average \([0-9]*\).*/\1/p' | tail -1)
    after=$(cpu_us "$tgt")
    echo "$iops $(((after - before) / (iops * seconds)))"
}

# hop RW SIZE DEPTH: processor time of host and target for an I/O, of blocks in memory
hop() {
    "$roadtrain" bench --namespace mem:256MiB --no-spin --rw "$1" --bs "$2" --depth "$3" --lanes 1 \
        --seconds 1 --json | jq '.cpu_ns_per_io / 1000'
}

"$here/cluster.sh" start "$work/ceph" >/dev/null
# A gateway has none: what it has answered is on all replicas.
printf '[client]\nrbd cache = false\n' >>"$work/ceph/ceph.conf"
export CEPH_CONF=$work/ceph/ceph.conf
images=(fio gateway)
if command -v qemu-storage-daemon >/dev/null && ls /usr/lib/*/qemu/block-rbd.so >/dev/null 2>&1; then images+=(qemu); fi
if command -v tgtd iscsi-perf >/dev/null && [ -e /usr/lib/tgt/backing-store/bs_rbd.so ]; then
    images+=(tgt)
fi
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
if [[ " ${images[*]} " = *" qemu "* ]]; then
    qemu-storage-daemon --blockdev driver=rbd,node-name=d,pool=rbd,image=qemu \
        --nbd-server addr.type=unix,addr.path="$work/qemu.sock" \
        --export type=nbd,id=e,node-name=d,name=qemu,writable=on >"$work/qemu.log" 2>&1 &
    qemu=$!
    started+=("$qemu")
    sleep 1
else
    echo 'qemu-storage-daemon with rbd is not here (qemu-system-common, qemu-block-extra)'
fi
iqn=iqn.2026-11.test:speed iscsi_port=$((20000 + RANDOM % 10000))
if [[ " ${images[*]} " = *" tgt "* ]]; then
    tgtd -f -C $((1 + RANDOM % 1000)) --iscsi portal=127.0.0.1:$iscsi_port >"$work/tgt.log" 2>&1 &
    tgt=$!
    started+=("$tgt")
    sleep 1
    channel=$(tr '\0' ' ' <"/proc/$tgt/cmdline" | sed 's/.*-C \([0-9]*\) .*/\1/')
    adm() { tgtadm -C "$channel" --lld iscsi --op "$@"; }
    adm new --mode target --tid 1 -T $iqn
    adm new --mode logicalunit --tid 1 --lun 1 --bstype rbd --backing-store rbd/tgt --bsopts "conf=$CEPH_CONF;id=admin"
    adm bind --mode target --tid 1 -I ALL
else
    echo 'tgt with rbd and iscsi-perf are not here (tgt, tgt-rbd, libiscsi-bin)'
fi

# middle FILE: of both columns
middle() {
    local column
    for column in 1 2; do
        awk -v c=$column '{print $c}' "$1" | sort -n | awk '{a[NR] = $1} END {printf "%s ", NR ? int((a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2) : "-"}'
    done
}

cores=$(nproc)
echo 'what             | librbd: IOPS, us of CPU | gateway: IOPS, us of CPU, of librbd, at most, hop us | qemu: IOPS, us of CPU | tgt'
for point in randread:4k:1 randread:4k:32 randread:4k:128 randread:128k:32 randwrite:4k:1 randwrite:4k:32 \
    randwrite:4k:128 randwrite:128k:32; do
    IFS=: read -r rw size depth <<<"$point"
    for name in librbd gateway qemu tgt; do : >"$work/$name.found"; done
    for ((round = 0; round < rounds; round++)); do
        by_librbd "$rw" "$size" "$depth" >>"$work/librbd.found"
        by_gateway "$rw" "$size" "$depth" >>"$work/gateway.found"
        for other in "${images[@]:2}"; do "by_$other" "$rw" "$size" "$depth" >>"$work/$other.found"; done
    done
    read -r one one_cpu <<<"$(middle "$work/librbd.found")"
    read -r two two_cpu <<<"$(middle "$work/gateway.found")"
    hop=$(hop "$rw" "$size" "$depth")
    printf '%-16s | %s, %s | %s, %s, %s, %s | %s | %s\n' "$rw $size $depth" "$one" "$one_cpu" "$two" "$two_cpu" \
        "$(awk "BEGIN {printf \"%.2f\", $two / $one}")" \
        "$(awk "BEGIN {t = $cores * 1e6 / $one; if ($depth == 1) printf \"-, -\"; else printf \"%.2f, %.1f\", t / (t + $hop), $hop}")" \
        "$(middle "$work/qemu.found")" "$(middle "$work/tgt.found")"
done
echo "at depth 1: latency is 1e6 / IOPS us"
