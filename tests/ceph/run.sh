#!/bin/bash
# Images of a Ceph cluster that is started on this machine, one gateway and several, under unmodified programs. Most of the
# time they wait for Ceph to notice something, so they may run beside other tests.
# run.sh [NAME,...]; ROADTRAIN=path of the program (built if not given).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR
. "$here/../lib/harness.sh"
run_folder "$here" "${1-}"
