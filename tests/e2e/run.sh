#!/bin/bash
# End to end on this machine: `roadtrain serve` and `roadtrain attach` under unmodified programs.
# run.sh [NAME,...]; ROADTRAIN=path of the program (built if not given).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR
. "$here/../lib/harness.sh"
at_once=$(($(nproc) + 1)) # most of the time they wait
run_folder "$here" "${1-}"
