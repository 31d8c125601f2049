# shellcheck shell=bash
# A virtual machine whose disk is a remote namespace: QEMU's vhost-user-blk and the guest's virtio_blk.

thorough+=(vhost_user_disk)

# start_backend: sockets of all namespaces in disks/; leaves its process in $attached
start_backend() {
    background attach.log "$ROADTRAIN" attach -t tcp -a "$target_address" -s "$port" -n "$nqn" \
        --lanes 2 --cores 0,1 --as "vhost-user:$work/disks/"
    attached=$pid
    until_line attach.log '^ready' "$attached"
}

# start_vhost_guest DISKS SCRIPT [OPTIONS]: with so many of them; leaves vm.sh's process in $vm
start_vhost_guest() {
    local n disks=()
    for n in $(seq "$1"); do
        disks+=(-q "-chardev socket,id=disk$n,path=$work/disks/nvme0n$n.sock,reconnect=1"
            -q "-device vhost-user-blk-pci,chardev=disk$n,num-queues=2")
    done
    background guest.log "$here/vm.sh" run -s "$work/share" "${@:3}" "${disks[@]}" \
        -q '-object memory-backend-memfd,id=mem,size=1024M,share=on -machine memory-backend=mem' "$2"
    vm=$pid
}

test_vhost_user_disk() {
    mkdir share disks
    truncate -s 16M ro.img
    share_exercise
    configure "file:$work/disk.img,size=128MiB,lba=4096" "file:$work/ro.img,size=16MiB,ro"
    serve_configured
    start_backend
    start_vhost_guest 1 "$here/guest-vhost.sh" -e SECTORS=$((128 * 2048)) -e GROWN=$((192 * 2048))
    until_file share/grow "$vm"
    configure "file:$work/disk.img,size=192MiB,lba=4096" "file:$work/ro.img,size=16MiB,ro"
    kill -HUP "$target"
    local n
    for n in 1 2; do
        until_file "share/kill$n" "$vm"
        kill -KILL "$attached"
        ended "$attached" 60
        start_backend
        touch "share/killed$n"
    done
    until_file share/target "$vm"
    kill -KILL "$target"
    ended "$target" 60
    serve_configured
    touch share/returned
    # In order, too: what is under way is finished, and the guest waits for the next one.
    until_file share/stop "$vm"
    kill -TERM "$attached"
    ended "$attached" 20
    [ -z "$(ls disks)" ] || fail 'the sockets stay'
    start_backend
    touch share/stopped
    until_file share/crash "$vm"
    for n in $(seq 300); do
        [ ! -e share/record ] || [ "$(wc -l <share/record)" -lt 20 ] || break
        sleep 0.1
    done
    kill -KILL "$vm"
    until_line attach.log 'the frontend is gone' "$attached"
    # Another machine finds what that one wrote and synced, and a disk that it may not write.
    cat >again.sh <<'E'
set -eu
modprobe -a virtio_blk ext4
for n in $(seq 100); do [ ! -e /dev/vdb ] || break; sleep 0.1; done
mkdir -p /mnt
mount /dev/vda /mnt
[ "$(cd /mnt && md5sum -c sums | grep -c OK)" = 40 ]
/share/exercise synced /mnt/synced --record /share/record --check
umount /mnt
e2fsck -fn /dev/vda
[ "$(cat /sys/block/vdb/size) $(cat /sys/block/vdb/ro)" = '32768 1' ]
if dd if=/dev/zero of=/dev/vdb bs=4k count=1 2>/dev/null; then exit 1; fi
dd if=/dev/vdb bs=1M iflag=direct 2>/dev/null | cmp -n 16777216 - /dev/zero
E
    start_vhost_guest 2 again.sh
    guest_ends "$vm"
    [ "$(grep -c 'frontend connects' attach.log)" -ge 3 ]
    alive "$attached"
}
