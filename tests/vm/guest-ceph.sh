# shellcheck shell=bash
# Runs in the guest: the commands in /share/commands, one a line, like a reader who follows docs/guide/ceph.md.
set -eu

ip route add default via 10.0.2.9
modprobe ext4 # this mount does not ask for it

while read -r command; do
    echo "$ $command"
    case $command in
    mkfs*) for _ in $(seq 100); do [ ! -b /dev/nvme0n1 ] || break; sleep 0.1; done ;;
    esac
    eval "$command"
done </share/commands
seq 1000000 >/mnt/data/file
sum=$(sha256sum </mnt/data/file)
umount /mnt/data
mount /dev/nvme0n1 /mnt/data
[ "$(sha256sum </mnt/data/file)" = "$sum" ]
umount /mnt/data
nvme disconnect -n nqn.2025-01.io.example:disk
ip route del default
