# shellcheck shell=bash
# Runs in the guest: connects to COUNT namespaces and reads the last one; one of them goes then, by a file in /share.
set -eu

# await SECONDS COMMAND...: seconds of the guest, whose clock runs several times as fast while the machine is busy
await() {
    local n
    for n in $(seq $(($1 * 2))); do if "${@:2}"; then return 0; fi; sleep 0.5; done
    echo "never: ${*:2}; there are $(there)"
    return 1
}
there() { find /sys/block -maxdepth 1 -name 'nvme*n*' ! -name '*c*n*' | wc -l; }
up() { awk '{print $1}' /proc/uptime; }
since() { echo "$(up) $1" | awk '{print $1 - $2}'; }
has() { [ "$(there)" = "$1" ]; }

modprobe nvme-tcp
before=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)
begun=$(up)
nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" -i 1
await 7200 has "$COUNT"
after=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)
echo "measured: $COUNT namespaces after $(since "$begun") s of the guest," \
    "$(((before - after) / COUNT)) KiB of its memory for each"
dd if="/dev/nvme0n$COUNT" of=/dev/null bs=4k count=4 iflag=direct
touch /share/connected
begun=$(up)
await 1800 has $((COUNT - 1))
echo "measured: one goes, and is gone after $(since "$begun") s of the guest"
[ ! -b "/dev/nvme0n$((COUNT / 2))" ]
# nvme-cli opens each namespace, and has not that many descriptors.
echo 1 >/sys/class/nvme/nvme0/delete_controller
await 3600 has 0
