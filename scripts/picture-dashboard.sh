#!/bin/bash
# Makes the guide's picture of the dashboard anew, of a real load: docs/guide/pictures/dashboard.png. It takes two minutes.
# The panels are those of monitoring/dashboard.json with what a Prometheus has collected; picture_dashboard.py draws them,
# without Grafana. Needs prometheus and chromium; pngquant makes the picture smaller.
# ROADTRAIN=path of the program (built if not given).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/pictured.sh"

# One port at two addresses: a second way that the target calls worse.
port=$((20000 + RANDOM % 10000))
background serve serve --id demo -a 127.0.0.1 -a 127.0.0.2 -s "$port" --ana 127.0.0.2=non-optimized -n "$nqn" \
    --namespace mem:256MiB --namespace ssd:64MiB,service-us=100 --namespace mem:64MiB,class=bulk --metrics 127.0.0.1:0
background attach attach --id disk -a 127.0.0.1 -a 127.0.0.2 -s "$port" -n "$nqn" --nsid 1 \
    --as "nbd:unix:$work/nbd.sock" --metrics 127.0.0.1:0

load database --nsid 2 --rw randread --bs 4k --step depth=1:16,period-ms=12000
load backup --nsid 3 --rw read --bs 64k --depth 2 --rate 600 --class bulk
load mail --nsid 1 --rw randrw --bs 8k --depth 4 --rate 900
while :; do
    qemu-img bench -q -f raw -t none -c 15000 -d 8 -s 4096 "nbd+unix:///?socket=$work/nbd.sock"
    qemu-img bench -q -f raw -t none -c 15000 -d 16 -s 4096 -w "nbd+unix:///?socket=$work/nbd.sock"
done >/dev/null 2>&1 &
pids+=($!)

cat >"$work/prometheus.yml" <<END
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: roadtrain
    static_configs: [{targets: ["$(metrics_of serve)", "$(metrics_of attach)"]}]
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
publish pictures/dashboard.png 64
