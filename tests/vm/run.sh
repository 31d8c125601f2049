#!/bin/bash
# Against the real Linux kernel in a virtual machine: its nvme-tcp connects to our target, and our host
# to its nvmet-tcp. run.sh [NAME,...]; ROADTRAIN=path of the program (built if not given).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR
. "$here/../lib/harness.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/run-boot.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/run-host.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/run-target.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/run-ublk.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/run-vhost.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/run-numa.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/run-security.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/run-ceph.sh"

# share_program: our program and the libraries that it loads, for a guest's /share
share_program() {
    mkdir -p share/lib
    cp "$ROADTRAIN" share/roadtrain
    # shellcheck disable=SC2046
    cp -L $(ldd "$ROADTRAIN" | grep -o '/[^ ]*') share/lib
}

build_roadtrain
"$here/vm.sh" prepare || exit 1
at_once=$(nproc)
run_tests "${1-}"
