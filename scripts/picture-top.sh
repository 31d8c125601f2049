#!/bin/bash
# Makes the guide's picture of top anew, of a real load: docs/guide/pictures/top.svg. It takes half a minute.
# ROADTRAIN=path of the program (built if not given).
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
ROADTRAIN=${ROADTRAIN:-$here/target/release/roadtrain}
[ -x "$ROADTRAIN" ] || cargo build --quiet --release --package roadtrain --manifest-path "$here/Cargo.toml"
work=$(mktemp -d)
export ROADTRAIN_RUNTIME_DIR=$work/run
nqn=nqn.2025-01.io.example:disk
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait; rm -rf "$work"' EXIT

"$ROADTRAIN" serve -a 127.0.0.1 -s 0 -n "$nqn" --namespace mem:256MiB --namespace ssd:64MiB,service-us=100 \
    >"$work/target.log" 2>&1 &
pids+=($!)
for ((n = 0; n < 200; n++)); do
    grep -q '^ready' "$work/target.log" && break
    sleep 0.05
done
port=$(sed -n 's/^ready.*127\.0\.0\.1:\([0-9]*\).*/\1/p' "$work/target.log")

# load HOST OPTIONS...: a host with a load
load() {
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --host-nqn "nqn.2025-01.io.example:$1" --seconds 60 "${@:2}" \
        >"$work/$1.log" 2>&1 &
    pids+=($!)
}
load database --nsid 2 --rw randread --bs 4k --lanes 2 --step depth=1:16,period-ms=3000
load backup --rw read --bs 64k --lanes 1 --depth 4 --rate 900
load mail --rw randrw --bs 8k --lanes 1 --depth 4 --rate 1500

mkdir -p "$here/docs/guide/pictures"
"$ROADTRAIN" top --interval 0.4 --picture "$here/docs/guide/pictures/top.svg"
echo "docs/guide/pictures/top.svg"
