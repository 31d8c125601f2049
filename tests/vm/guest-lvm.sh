# shellcheck shell=bash
# Runs in the guest: LVM on a namespace that its kernel is connected to, by the commands in /share/commands, seen by two
# hosts one after the other. /share/grow requests a larger namespace.
set -eu

step() { echo "--- $(cut -d' ' -f1 /proc/uptime) $*"; }
await() { # await SECONDS COMMAND...
    local n
    for n in $(seq $(($1 * 10))); do if "${@:2}"; then return 0; fi; sleep 0.1; done
    echo "never: ${*:2}"
    return 1
}
is_block() { [ -b "$1" ]; }
is_larger() { [ "$(cat "/sys/block/${1##*/}/size")" -gt "$2" ]; }

cp -r /share/lvm /share/lib /tmp
# There is no udev here: LVM makes its nodes itself, and the name that udev's rule would make is made below.
lvm() {
    /tmp/lib/ld-linux-x86-64.so.2 --library-path /tmp/lib /tmp/lvm "$@" \
        --config 'activation {udev_sync=0 udev_rules=0 monitoring=0} devices {use_devicesfile=0} global {event_activation=0}'
}
for command in pvcreate pvresize pvs vgcreate vgchange vgs lvcreate lvremove lvs lvextend; do
    eval "$command() { lvm $command \"\$@\"; }"
done

# connected NAME: the host of that name has the namespace, as $device and by its identity
connected() {
    local block
    nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" --hostnqn "nqn.2014-08.org.nvmexpress:uuid:$1" --hostid "$1" \
        --ctrl-loss-tmo=-1
    await 20 eval 'ls /sys/block/nvme[0-9]n1/wwid >/dev/null 2>&1'
    block=$(echo /sys/block/nvme[0-9]n1)
    device=/dev/${block##*/}
    await 20 is_block "$device"
    mkdir -p /dev/disk/by-id
    ln -sf "$device" "/dev/disk/by-id/nvme-$(cat "$block/wwid")"
}

modprobe -a nvme-tcp dm_mod ext4
step 'the first host makes a volume group'
connected 11111111-1111-4111-8111-111111111111
# shellcheck source=/dev/null
. /share/commands
lvcreate -y -n vm-100-disk-0 -L 64M roadtrain
mkfs.ext4 -q -F /dev/roadtrain/vm-100-disk-0
mkdir -p /mnt
mount /dev/roadtrain/vm-100-disk-0 /mnt
head -c 8388608 /dev/urandom >/mnt/data
md5sum </mnt/data >/tmp/sum
umount /mnt
lvcreate -y -n vm-101-disk-0 -L 32M roadtrain
lvremove -y roadtrain/vm-101-disk-0
vgchange -an roadtrain
nvme disconnect-all

step 'another host finds it'
connected 22222222-2222-4222-8222-222222222222
vgchange -ay roadtrain
mount /dev/roadtrain/vm-100-disk-0 /mnt
md5sum </mnt/data | cmp - /tmp/sum

step 'more space'
before=$(cat "/sys/block/${device##*/}/size")
touch /share/grow
await 20 is_larger "$device" "$before"
pvresize "$device"
lvextend -L 300M roadtrain/vm-100-disk-0
umount /mnt
vgchange -an roadtrain
nvme disconnect-all
rm -r /dev/disk/by-id
! dmesg | grep -E 'I/O error'
