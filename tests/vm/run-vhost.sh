# shellcheck shell=bash
# A virtual machine whose disk is a remote namespace: QEMU's vhost-user-blk and the guest's virtio_blk.

# start_backend: leaves its process in $attached
start_backend() {
    background attach.log "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" \
        --lanes 2 --cores 0,1 --as "vhost-user:$work/vhost.sock"
    attached=$pid
    until_line attach.log '^ready' "$attached"
}

# start_target: as target.toml says; leaves its process in $target
start_target() {
    background target.log "$ROADTRAIN" serve --config target.toml
    target=$pid
    until_line target.log '^ready' "$target"
}

# start_vhost_guest SCRIPT [OPTIONS]: leaves vm.sh's process in $vm
start_vhost_guest() {
    background guest.log "$here/vm.sh" run -s "$work/share" "${@:2}" \
        -q '-object memory-backend-memfd,id=mem,size=1024M,share=on -machine memory-backend=mem' \
        -q "-chardev socket,id=disk,path=$work/vhost.sock,reconnect=1" \
        -q '-device vhost-user-blk-pci,chardev=disk,num-queues=2' "$1"
    vm=$pid
}

test_vhost_user_disk() {
    mkdir share
    configure "file:$work/disk.img,size=128MiB,lba=4096"
    start_target
    start_backend
    start_vhost_guest "$here/guest-vhost.sh" -e SECTORS=$((128 * 2048)) -e GROWN=$((192 * 2048))
    until_file share/grow "$vm"
    configure "file:$work/disk.img,size=192MiB,lba=4096"
    kill -HUP "$target"
    local n
    for n in 1 2; do
        until_file "share/kill$n" "$vm"
        kill -KILL "$attached"
        ended "$attached" 5
        start_backend
        touch "share/killed$n"
    done
    until_file share/target "$vm"
    kill -KILL "$target"
    ended "$target" 5
    sleep 1
    start_target
    touch share/returned
    # In order, too: what is under way is finished, and the guest waits for the next one.
    until_file share/stop "$vm"
    kill -TERM "$attached"
    ended "$attached" 20
    [ ! -e vhost.sock ] || fail 'the socket stays'
    start_backend
    touch share/stopped
    wait "$vm" || { cat guest.log attach.log; fail 'the guest is not content'; }
    # Another machine, when the first one is off, finds what that one wrote.
    cat >again.sh <<'E'
modprobe -a virtio_blk ext4
for n in $(seq 100); do [ ! -e /dev/vda ] || break; sleep 0.1; done
mkdir -p /mnt && mount -o ro /dev/vda /mnt && cd /mnt && [ "$(md5sum -c sums | grep -c OK)" = 40 ]
E
    start_vhost_guest again.sh
    wait "$vm" || { cat guest.log attach.log; fail 'the second guest is not content'; }
    [ "$(grep -c 'frontend connects' attach.log)" = 2 ]
    alive "$attached"
}
