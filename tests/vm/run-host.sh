# shellcheck shell=bash
# The kernel's host against our target.

# guest [OPTIONS of vm.sh run] SCRIPT: with $port and $nqn known to the script
guest() { "$here/vm.sh" run -e "PORT=$port" -e "NQN=$nqn" "$@"; }

# Discover, connect, identify, fio with verification, zeroes, discard, flush, ext4 and xfs, disconnect.
test_kernel_host_memory_two_queues() {
    serve --namespace mem:512MiB --policy i10
    guest -e 'ARGS=-i 2' "$here/host-check.sh"
}

test_kernel_host_file_digests_4kn() {
    serve --namespace "file:$work/disk.img,size=512MiB,lba=4096"
    guest -e 'ARGS=--hdr-digest --data-digest -i 2' -e FS=ext4 "$here/host-check.sh"
    alive "$target"
}

test_kernel_host_without_sq_flow_control() {
    serve --namespace mem:512MiB
    guest -e 'ARGS=--disable-sqflow' -e FS=ext4 "$here/host-check.sh"
}

# A host that only discards, zeroes or flushes for longer than its keep-alive timeout is not dropped.
test_kernel_host_keep_alive_by_any_command() {
    serve --namespace mem:64MiB
    guest "$here/guest-keep-alive.sh"
    ! grep -q KeepAliveExpired target.log || fail 'the target dropped the host'
}

# The target is killed and started again under a mounted file system that is being written.
test_kernel_host_survives_target_restart() {
    mkdir share
    serve --namespace "file:$work/disk.img,size=512MiB"
    background guest.log "$here/vm.sh" run -e "PORT=$port" -e "NQN=$nqn" -s "$work/share" \
        "$here/guest-restart.sh"
    local vm=$pid n
    for n in 1 2; do
        until_file "share/restart$n" "$vm"
        kill -KILL "$target"
        ended "$target" 60
        sleep 1
        serve --namespace "file:$work/disk.img,size=512MiB"
        touch "share/restarted$n"
    done
    wait "$vm" || { cat guest.log; fail 'the guest is not content'; }
}

# Namespaces come, grow, go and are replaced while the kernel is connected: it hears of it by asynchronous events.
test_kernel_host_sees_namespaces_change() {
    mkdir share
    port=$(free_port) nqn=nqn.2026-11.test:e2e
    configure "file:$work/a.img,size=64MiB"
    serve_configured
    background guest.log "$here/vm.sh" run -e "PORT=$port" -e "NQN=$nqn" -s "$work/share" \
        "$here/guest-namespaces.sh"
    local vm=$pid
    until_file share/connected "$vm"
    configure "file:$work/a.img,size=64MiB" "file:$work/b.img,size=32MiB"
    kill -HUP "$target"
    until_file share/appeared "$vm"
    configure "file:$work/a.img,size=128MiB" "file:$work/b.img,size=32MiB"
    kill -HUP "$target"
    until_file share/grown "$vm"
    configure "file:$work/a.img,size=128MiB" "file:$work/c.img,size=32MiB"
    kill -HUP "$target"
    until_file share/replaced "$vm"
    configure "file:$work/a.img,size=128MiB"
    kill -HUP "$target"
    wait "$vm" || { cat guest.log; fail 'the guest is not content'; }
}

# Compare, Verify, Copy and Get LBA Status as nvme-cli sends them.
test_kernel_host_commands() {
    serve --namespace "file:$work/disk.img,size=64MiB"
    guest "$here/guest-commands.sh"
    alive "$target"
}

# Two hosts of the kernel share a disk by reservations, which outlive the target.
test_kernel_host_reservations() {
    mkdir share
    serve --namespace "file:$work/disk.img,size=64MiB"
    background guest.log "$here/vm.sh" run -e "PORT=$port" -e "NQN=$nqn" -s "$work/share" \
        "$here/guest-reservations.sh"
    local vm=$pid
    until_file share/reserved "$vm"
    kill -KILL "$target"
    ended "$target" 60
    serve --namespace "file:$work/disk.img,size=64MiB"
    touch share/restarted
    wait "$vm" || { cat guest.log; fail 'the guest is not content'; }
}

# until_file FILE PID [SECONDS]: waits for a file while the process lives
until_file() {
    local n
    for ((n = 0; n < ${3:-400} * 10; n++)); do
        [ ! -e "$1" ] || return 0
        alive "$2" || { cat guest.log; fail "the guest ended before $1"; }
        sleep 0.1
    done
    fail "no $1"
}

# The kernel's NBD client, over four connections, on a namespace that our host attaches over two lanes: the
# target is killed and comes back, the namespace grows, and at last both are killed. The client uses blocks of 512
# octets on a namespace of 4096: many writes are parts of blocks.
test_kernel_nbd_client() {
    mkdir share
    cp "$EXERCISE" share/exercise
    port=$(free_port) nqn=nqn.2026-11.test:e2e
    configure "file:$work/disk.img,size=128MiB,lba=4096"
    serve_configured
    attach_tcp --lanes 2 --reconnect-delay 1
    background guest.log "$here/vm.sh" run -e "PORT=${uri##*:}" -e BYTES=134217728 -s "$work/share" \
        "$here/guest-nbd.sh"
    local vm=$pid
    until_file share/restart "$vm"
    kill -KILL "$target"
    ended "$target" 60
    sleep 1
    serve_configured
    touch share/restart.done
    until_file share/grow "$vm"
    configure "file:$work/disk.img,size=256MiB,lba=4096"
    kill -HUP "$target"
    has_size 268435456
    touch share/grow.done
    until_file share/crash "$vm"
    kill -KILL "$attached" "$target"
    ended "$target" 60
    ended "$attached" 60
    serve_configured
    nbd_port=${uri##*:}
    attach_tcp --lanes 2
    touch share/crash.done
    wait "$vm" || { cat guest.log; fail 'the guest is not content'; }
}

# Through taps, where discovery names an address that the guest can reach: connect-all, a persistent
# discovery controller, and the event when a subsystem is added.
test_kernel_host_persistent_discovery() {
    { [ "$(id -u)" = 0 ] && [ -c /dev/net/tun ]; } || skip 'needs root and /dev/net/tun'
    mkdir share
    subsystems() {
        printf 'address = "10.0.2.2"\n'
        printf '[[subsystem]]\nnqn = "nqn.2026-11.test:%s"\n[[subsystem.namespace]]\nnsid = 1\nkind = "mem"\nsize = "64MiB"\n' "$@"
    }
    subsystems one >target.toml
    subsystems one two >both.toml
    export here ROADTRAIN
    # shellcheck disable=SC2016
    "$here/vm.sh" netns bash -euc '
        "$ROADTRAIN" serve --config target.toml >target.log 2>&1 &
        target=$!
        "$here/vm.sh" run -n 0 -s "$PWD/share" "$here/guest-discovery.sh" &
        vm=$!
        trap "kill $target $vm 2>/dev/null || true" EXIT
        until [ -e share/connected ]; do kill -0 $vm; sleep 0.1; done
        mv both.toml target.toml
        kill -HUP $target
        wait $vm'
}

# The kernel's multipath over two listeners, with a file system under load: ANA changes, a black hole, reset
# connections, a target that is killed. No error, nothing lost.
test_kernel_host_multipath() {
    { [ "$(id -u)" = 0 ] && [ -c /dev/net/tun ]; } || skip 'needs root and /dev/net/tun'
    mkdir share
    export here ROADTRAIN work
    "$here/vm.sh" netns bash "$here/paths.sh"
}

# The same with two target processes and one disk: each is killed in its turn, and comes back to stand by.
test_kernel_host_two_processes() {
    { [ "$(id -u)" = 0 ] && [ -c /dev/net/tun ]; } || skip 'needs root and /dev/net/tun'
    mkdir share
    export here ROADTRAIN work
    "$here/vm.sh" netns bash "$here/processes.sh"
}
