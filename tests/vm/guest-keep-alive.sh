# shellcheck shell=bash
# Runs in the guest: for longer than the keep-alive timeout the kernel's host sends nothing but one kind of
# command that moves no data. As they are answered it sends no Keep Alive: traffic counts for both.
set -eu

modprobe nvme-tcp
nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" -i 2 -k 4
for _ in $(seq 100); do [ ! -b /dev/nvme0n1 ] || break; sleep 0.1; done
exec 3<>/dev/nvme0n1  # the first who opens it, and the last who closes it, would have it read
cntlid=$(cat /sys/class/nvme/nvme0/cntlid)

# only COMMAND...: nothing else, for three times the timeout
only() {
    local end=$(($(cut -d. -f1 /proc/uptime) + 13))
    while [ "$(cut -d. -f1 /proc/uptime)" -lt $end ]; do
        "$@" || { echo "failed: $*"; dmesg | tail; return 1; }
    done
    echo "ok: $*"
}
only blkdiscard --length 1M /dev/nvme0n1
only blkdiscard --zeroout --length 1M /dev/nvme0n1
only nvme flush /dev/nvme0n1

grep -q live /sys/class/nvme/nvme0/state
[ "$(cat /sys/class/nvme/nvme0/cntlid)" = "$cntlid" ]
! dmesg | grep -E 'nvme nvme0: .*(keep-alive|error recovery|econnect)|I/O error'
nvme disconnect -n "$NQN"
