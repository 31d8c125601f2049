# shellcheck shell=bash
# Runs in the guest: namespace 2 appears, namespace 1 grows, another namespace takes the place of namespace 2,
# is hidden from this host, is shown again, and goes at last; a file in /share requests each step.
set -eu

blocks() { cat /sys/block/nvme0n1/size 2>/dev/null || echo 0; }
# await SECONDS COMMAND...: seconds of the guest, whose clock runs several times as fast while the machine is busy
await() {
    local n
    for n in $(seq $(($1 * 10))); do if "${@:2}"; then return 0; fi; sleep 0.1; done
    echo "never: ${*:2}"
    ls /dev/nvme*
    return 1
}
is_there() { [ -b "$1" ]; }
is_gone() { [ ! -b "$1" ]; }
has_zeroes() { cmp -n 1048576 "$1" /dev/zero; }
has_blocks() { [ "$(blocks)" = "$1" ]; }

modprobe nvme-tcp
nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" -i 1
await 120 is_there /dev/nvme0n1
await 60 has_blocks $((64 * 2048))
is_gone /dev/nvme0n2
touch /share/connected
await 120 is_there /dev/nvme0n2
dd if=/dev/urandom of=/dev/nvme0n2 bs=64k count=16 oflag=direct
touch /share/appeared
await 120 has_blocks $((128 * 2048))
first=$(cat /sys/block/nvme0n2/wwid)
# While a device goes its node may be there without a name.
another_is_there() {
    local name
    [ -b /dev/nvme0n2 ] && name=$(cat /sys/block/nvme0n2/wwid 2>/dev/null) && [ -n "$name" ] && [ "$name" != "$first" ]
}
touch /share/grown
await 240 another_is_there
await 60 has_zeroes /dev/nvme0n2
touch /share/replaced
await 120 is_gone /dev/nvme0n2
! nvme list-ns /dev/nvme0 | grep -q ':0x2$'
! nvme id-ns /dev/nvme0 -n 2 | grep -Eq '^nsze *: *0x[1-9a-f]'
touch /share/hidden
await 240 is_there /dev/nvme0n2
[ "$(cat /sys/block/nvme0n2/ana_grpid 2>/dev/null || cat /sys/block/nvme0c0n2/ana_grpid)" = 7 ]
touch /share/shown
await 120 is_gone /dev/nvme0n2
dd if=/dev/nvme0n1 of=/dev/null bs=1M count=64 skip=64 iflag=direct
nvme disconnect -n "$NQN"
