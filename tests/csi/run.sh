#!/bin/bash
# The CSI driver against a running target: csi-sanity, calls in the order of kubelet, kills, the chart.
# run.sh [NAME,...], or run.sh --list [--thorough]; ROADTRAIN=path, CSI=path of the programs (built if not given).
# ROUNDS=N: lives of volumes in the kill test (20); KILL_SEED=N: the same kills again.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR
. "$here/../lib/harness.sh"
if [ -z "${CSI-}" ]; then
    cargo build --quiet --manifest-path "$top/csi/Cargo.toml" || exit
fi
export CSI=${CSI:-$top/target/debug/roadtrain-csi}
at_once=1
run_folder "$here" "$@"
