# shellcheck shell=bash
# Runs in the guest: connects to everything that discovery names and keeps the discovery controller; when the
# target has another subsystem, is notified by an asynchronous event and connects to that, too.
set -eu

await() { # await SECONDS COMMAND...
    local n
    for n in $(seq $(($1 * 10))); do if "${@:2}"; then return 0; fi; sleep 0.1; done
    echo "never: ${*:2}"
    return 1
}
heard() { grep -q '^NVME_AEN=0x70f002' /tmp/events 2>/dev/null; }
devices() { [ "$(ls /dev/nvme*n1 2>/dev/null | wc -l)" = "$1" ]; }

modprobe nvme-tcp
busybox uevent sh -c 'env | grep ^NVME_ >>/tmp/events; true' &
nvme connect-all -t tcp -a 10.0.2.2 -s 4420 --persistent
await 20 devices 1
touch /share/connected
await 20 heard
nvme connect-all -t tcp -a 10.0.2.2 -s 4420
await 20 devices 2
cat /sys/class/nvme/*/subsysnqn
nvme disconnect-all
await 20 devices 0
