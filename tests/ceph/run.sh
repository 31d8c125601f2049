#!/bin/bash
# Images of a Ceph cluster that is started on this machine, one gateway and several, under unmodified programs. The tests
# share one cluster; those of `make demo-ceph` start their own. They mostly wait for Ceph to notice something, so they may
# run beside other suites.
# run.sh [NAME,...]; ROADTRAIN=path of the program (built if not given).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR
. "$here/../lib/harness.sh"

# The suite has a network of its own if it may. Packages still come through the one outside.
if [ -z "${CEPH_OUTSIDE-}" ]; then
    [ "${1-}" = --list ] || build_roadtrain
    exec {outside}</proc/self/ns/net
    export CEPH_OUTSIDE=$outside
    ! unshare --net true 2>/dev/null || exec unshare --net "$0" "$@"
fi
# shellcheck source-path=SCRIPTDIR
. "$here/shared.sh"
run_shared "$here" "$@"
