#!/bin/bash
# Makes the guide's picture of top anew, of a real load: docs/guide/pictures/top.svg. It takes half a minute.
# ROADTRAIN=path of the program (built if not given).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/pictured.sh"

background serve serve -a 127.0.0.1 -s 0 -n "$nqn" --namespace mem:256MiB --namespace ssd:64MiB,service-us=100
port=$(sed -n 's/^ready.*127\.0\.0\.1:\([0-9]*\).*/\1/p' "$work/serve.log")

load database --nsid 2 --rw randread --bs 4k --lanes 2 --step depth=1:16,period-ms=3000
load backup --rw read --bs 64k --lanes 1 --depth 4 --rate 900
load mail --rw randrw --bs 8k --lanes 1 --depth 4 --rate 1500

mkdir -p "$here/docs/guide/pictures"
"$ROADTRAIN" top --interval 0.4 --picture "$here/docs/guide/pictures/top.svg"
echo "docs/guide/pictures/top.svg"
