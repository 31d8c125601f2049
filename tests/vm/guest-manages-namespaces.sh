# shellcheck shell=bash
# Runs in the guest: creates, attaches, writes, detaches and deletes a namespace by nvme-cli, as HOST.
set -eu

# await SECONDS COMMAND...: seconds of the guest, whose clock runs several times as fast while the machine is busy
await() {
    local n
    for n in $(seq $(($1 * 10))); do if "${@:2}"; then return 0; fi; sleep 0.1; done
    echo "never: ${*:2}"
    ls /dev/nvme*
    return 1
}
is_there() { [ -b "$1" ]; }
has_data() { dd if=/dev/nvme0n1 bs=64k count=16 iflag=direct | cmp data -; }
is_gone() { [ ! -b "$1" ]; }

modprobe nvme-tcp
nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" -q "$HOST" -i 1
await 120 test -c /dev/nvme0
cntlid=$(cat /sys/class/nvme/nvme0/cntlid)
oacs=$(nvme id-ctrl /dev/nvme0 | awk '/^oacs/ {print $3}')
[ $((oacs & 8)) = 8 ]
[ -z "$(nvme list-ns /dev/nvme0 --all)" ]
nvme create-ns /dev/nvme0 -s 32768 -c 32768 -f 0 -m 1 | tee created
grep -q 'nsid:1$' created
nvme list-ns /dev/nvme0 --all | grep -q ':0x1$'
is_gone /dev/nvme0n1
nvme attach-ns /dev/nvme0 -n 1 -c "$cntlid"
await 120 is_there /dev/nvme0n1
[ "$(blockdev --getsize64 /dev/nvme0n1)" = $((16 << 20)) ]
dd if=/dev/urandom of=data bs=64k count=16
dd if=data of=/dev/nvme0n1 bs=64k oflag=direct
has_data
nvme list-ctrl /dev/nvme0 -n 1 | grep -q ":0x$(printf %x "$cntlid")\$"
! nvme attach-ns /dev/nvme0 -n 1 -c "$cntlid" # it is attached already
nvme detach-ns /dev/nvme0 -n 1 -c "$cntlid"
await 120 is_gone /dev/nvme0n1
nvme attach-ns /dev/nvme0 -n 1 -c "$cntlid"
await 240 is_there /dev/nvme0n1
has_data
nvme delete-ns /dev/nvme0 -n 1
await 120 is_gone /dev/nvme0n1
[ -z "$(nvme list-ns /dev/nvme0 --all)" ]
nvme disconnect -n "$NQN"
