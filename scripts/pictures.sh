#!/bin/bash
# Makes the pictures of the page for docs/guide: a target under the load of three hosts, in headless Chromium.
# ROADTRAIN=path of the program (built if not given). Needs chromium; pngquant makes the pictures smaller.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
ROADTRAIN=${ROADTRAIN:-$here/target/release/roadtrain}
[ -x "$ROADTRAIN" ] || cargo build --quiet --release --package roadtrain --manifest-path "$here/Cargo.toml"
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
nqn=nqn.2025-01.io.example:disk
export ROADTRAIN_RUNTIME_DIR=$work/run

"$ROADTRAIN" serve --id demo -a 127.0.0.1 -s 0 -n "$nqn" --namespace mem:256MiB --namespace "file:$work/disk.img,size=1GiB" \
    --namespace mem:64MiB,class=bulk --metrics 127.0.0.1:0 >"$work/serve.log" 2>&1 &
pids+=($!)
until grep -q '^ready' "$work/serve.log"; do sleep 0.1; done
port=$(sed -n 's/^ready 127.0.0.1:\([0-9]*\).*/\1/p' "$work/serve.log")
page=$(sed -n 's/.*metrics at \(http[^ ]*\).*/\1/p' "$work/serve.log")

# load HOST NSID DEPTH OPTIONS...
load() {
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --hostnqn "nqn.2025-01.io.example:$1" --nsid "$2" \
        --depth "$3" --seconds 120 "${@:4}" >/dev/null 2>&1 &
    pids+=($!)
}
load database 1 8 --rw randrw --bs 4k
load backup 3 2 --rw read --bs 128k --class bulk
load web 2 4 --rw randread --bs 4k --rate 3000

picture() {
    python3 "$here/tests/e2e/browser.py" "$page" 45 1 --picture "$work/$1.png" "${@:2}" >"$work/$1.json"
    if command -v pngquant >/dev/null; then
        pngquant --force --speed 1 --output "$work/$1.png" 128 "$work/$1.png"
    fi
    install -m 644 "$work/$1.png" "$here/docs/guide/$1.png"
    ls -l "$here/docs/guide/$1.png"
}
picture page --size 1180x1010 &
first=$!
picture page-dark --size 1180x640 --dark
wait "$first"
