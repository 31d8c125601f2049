#!/bin/bash
# Makes the pictures of the page for docs/guide: a target under the load of three hosts, in headless Chromium.
# ROADTRAIN=path of the program (built if not given). Needs chromium; pngquant makes the pictures smaller.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/pictured.sh"

background serve serve --id demo -a 127.0.0.1 -s 0 -n "$nqn" --namespace mem:256MiB \
    --namespace "file:$work/disk.img,size=1GiB" --namespace mem:64MiB,class=bulk --metrics 127.0.0.1:0
port=$(sed -n 's/^ready 127.0.0.1:\([0-9]*\).*/\1/p' "$work/serve.log")

load database --nsid 1 --depth 8 --rw randrw --bs 4k
load backup --nsid 3 --depth 2 --rw read --bs 128k --class bulk
load web --nsid 2 --depth 4 --rw randread --bs 4k --rate 3000

picture() {
    python3 "$here/tests/e2e/browser.py" "http://$(metrics_of serve)/" 45 1 --picture "$work/$1.png" "${@:2}" >"$work/$1.json"
    publish "$1.png" 128
}
picture page --size 1180x1010 &
first=$!
picture page-dark --size 1180x640 --dark
wait "$first"
