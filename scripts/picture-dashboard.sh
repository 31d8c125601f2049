#!/bin/bash
# Makes the guide's picture of the dashboard anew, of a real load: docs/guide/pictures/dashboard.png. It takes two minutes.
# The panels are those of monitoring/dashboard.json with what a Prometheus has collected; picture_dashboard.py draws them,
# without Grafana. Needs prometheus and chromium; pngquant makes the picture smaller.
# ROADTRAIN=path of the program (built if not given).
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
ROADTRAIN=${ROADTRAIN:-$here/target/release/roadtrain}
[ -x "$ROADTRAIN" ] || cargo build --quiet --release --package roadtrain --manifest-path "$here/Cargo.toml"
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
nqn=nqn.2025-01.io.example:disk
export ROADTRAIN_RUNTIME_DIR=$work/run

# until_ready LOG: it serves, or has attached
until_ready() {
    local n
    for ((n = 0; n < 400; n++)); do
        ! grep -q '^ready' "$1" || return 0
        sleep 0.05
    done
    cat "$1" >&2
    return 1
}
# port_of LOG: that of its metrics
port_of() { sed -n 's/.*metrics at http:..127\.0\.0\.1:\([0-9]*\).*/\1/p' "$1" | head -1; }

# One port at two addresses: a second way that the target calls worse.
port=$((20000 + RANDOM % 10000))
"$ROADTRAIN" serve --id demo -a 127.0.0.1 -a 127.0.0.2 -s "$port" --ana 127.0.0.2=non-optimized -n "$nqn" \
    --namespace mem:256MiB --namespace ssd:64MiB,service-us=100 --namespace mem:64MiB,class=bulk --metrics 127.0.0.1:0 \
    >"$work/serve.log" 2>&1 &
pids+=($!)
until_ready "$work/serve.log"
"$ROADTRAIN" attach --id disk -a 127.0.0.1 -a 127.0.0.2 -s "$port" -n "$nqn" --nsid 1 --as "nbd:unix:$work/nbd.sock" \
    --metrics 127.0.0.1:0 >"$work/attach.log" 2>&1 &
pids+=($!)
until_ready "$work/attach.log"

# load HOST NSID OPTIONS...: a host with a load
load() {
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --hostnqn "nqn.2025-01.io.example:$1" --nsid "$2" --seconds 200 \
        "${@:3}" >/dev/null 2>&1 &
    pids+=($!)
}
load database 2 --rw randread --bs 4k --step depth=1:16,period-ms=12000
load backup 3 --rw read --bs 64k --depth 2 --rate 600 --class bulk
load mail 1 --rw randrw --bs 8k --depth 4 --rate 900
while :; do
    qemu-img bench -q -f raw -t none -c 15000 -d 8 -s 4096 "nbd+unix:///?socket=$work/nbd.sock"
    qemu-img bench -q -f raw -t none -c 15000 -d 16 -s 4096 -w "nbd+unix:///?socket=$work/nbd.sock"
done >/dev/null 2>&1 &
pids+=($!)

cat >"$work/prometheus.yml" <<END
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: roadtrain
    static_configs: [{targets: ["127.0.0.1:$(port_of "$work/serve.log")", "127.0.0.1:$(port_of "$work/attach.log")"]}]
END
listen=127.0.0.1:$((30000 + RANDOM % 10000))
prometheus --config.file "$work/prometheus.yml" --storage.tsdb.path "$work/data" --web.listen-address "$listen" \
    >"$work/prometheus.log" 2>&1 &
pids+=($!)
sleep 80
python3 "$here/scripts/picture_dashboard.py" "http://$listen" 60 >"$work/dashboard.html"
height=$(sed -n 's/.*body { height: \([0-9]*\)px }.*/\1/p' "$work/dashboard.html")
python3 "$here/tests/e2e/browser.py" "file://$work/dashboard.html" 1 1 --picture "$work/dashboard.png" \
    --size "1182x$height" >"$work/picture.json"
if command -v pngquant >/dev/null; then
    pngquant --force --speed 1 --output "$work/dashboard.png" 64 "$work/dashboard.png"
fi
install -m 644 "$work/dashboard.png" "$here/docs/guide/pictures/dashboard.png"
ls -l "$here/docs/guide/pictures/dashboard.png"
