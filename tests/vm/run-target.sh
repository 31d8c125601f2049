# shellcheck shell=bash
# Our host against the kernel's target.

# kernel_target [OPTIONS of vm.sh target]: nvmet-tcp at 127.0.0.1:$port, exporting $nqn
kernel_target() {
    port=$(free_port) nqn=nqn.2024-01.test:kernel
    background kernel.log "$here/vm.sh" target -f "$port:4420" "$@"
    until_line kernel.log '^READY' "$pid" 120
}

test_kernel_target_bench_verifies() {
    kernel_target -e SIZE=256
    local address=(-t tcp -a 127.0.0.1 -s "$port" -n "$nqn")
    "$ROADTRAIN" discover -t tcp -a 127.0.0.1 -s "$port" | grep -q "$nqn"
    "$ROADTRAIN" identify "${address[@]}" --json >identify.json
    holds identify.json '.namespaces[0].bytes == 268435456'
    local options
    for options in '--bs 4k --lanes 2 --policy i10' '--bs 64k --lanes 1' \
        '--bs 4k --lanes 1 --hdr-digest --data-digest'; do
        # shellcheck disable=SC2086
        "$ROADTRAIN" bench "${address[@]}" --rw randrw --depth 16 --seconds 2 --verify --json $options >bench.json
        holds bench.json '.errors == 0 and .iops > 0'
    done
}

test_kernel_target_qemu_img_round_trip() {
    kernel_target -e SIZE=64 -e BS=4096
    truncate -s 64M disk.raw
    dd if=/dev/urandom of=disk.raw bs=1M count=12 seek=3 conv=notrunc status=none
    attach --hdr-digest --data-digest
    qemu-img convert -n -f raw -O raw disk.raw "$uri"
    qemu-img compare -f raw -F raw disk.raw "$uri"
    qemu-io -f raw -c 'discard 0 4M' -c 'write -z 4M 4M' -c 'write -f -P 7 8M 64k' -c 'flush' \
        -c 'read -P 0 4M 4M' -c 'read -P 7 8M 64k' "$uri"
}
