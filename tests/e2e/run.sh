#!/bin/bash
# End to end on this machine: `roadtrain serve` and `roadtrain attach` under unmodified programs.
# run.sh [NAME,...], or run.sh --list [--thorough]; ROADTRAIN=path of the program (built if not given).
# THOROUGH=1 runs those as well that `make test` leaves out; AT_ONCE=N runs N at a time.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR
. "$here/../lib/harness.sh"
[ -n "${LIBROADTRAIN-}" ] || to_build+=(--package roadtrain-capi)
export LIBROADTRAIN=${LIBROADTRAIN:-$top/target/debug/libroadtrain.so}
at_once=${AT_ONCE:-$(($(nproc) * 2 + 1))} # most of the time they wait
run_folder "$here" "$@"
