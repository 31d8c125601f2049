# shellcheck shell=bash
# The kernel's host against our target.

# shellcheck source=tests/lib/rpc.sh
. "$top/tests/lib/rpc.sh"

thorough+=(kernel_host_without_sq_flow_control kernel_host_keep_alive_by_any_command kernel_host_commands
    kernel_host_reservations kernel_nbd_client kernel_host_persistent_discovery
    kernel_host_thousands_of_namespaces kernel_host_manages_namespaces)
for name in kernel_host_{memory_two_queues,file_digests_4kn,without_sq_flow_control,keep_alive_by_any_command} \
    kernel_host_{survives_target_restart,sees_namespaces_change,commands,reservations,persistent_discovery,first_hour} \
    kernel_host_manages_namespaces \
    kernel_nbd_client; do
    group_of[$name]=${RT_VM_KERNEL:-stable}
done

# Discover, connect, identify, fio with verification, zeroes, discard, flush, ext4 and xfs, disconnect.
test_kernel_host_memory_two_queues() {
    serve --namespace mem:512MiB --policy i10
    guest -e 'ARGS=-i 2' "$here/host-check.sh"
}

test_kernel_host_file_digests_4kn() {
    serve --namespace "file:$work/disk.img,size=512MiB,lba=4096"
    guest -e 'ARGS=--hdr-digest --data-digest -i 2' -e 'SIZES=4k 1M' -e FS= "$here/host-check.sh"
    alive "$target"
}

test_kernel_host_without_sq_flow_control() {
    serve --namespace mem:512MiB
    guest -e 'ARGS=--disable-sqflow' -e SIZES=4k -e FS= "$here/host-check.sh"
}

# A host that only discards, zeroes or flushes for longer than its keep-alive timeout is not dropped.
test_kernel_host_keep_alive_by_any_command() {
    serve --namespace mem:64MiB
    guest "$here/guest-keep-alive.sh"
    ! grep -q KeepAliveExpired target.log || fail 'the target dropped the host'
}

# The target is killed and started again under a mounted file system that is being written.
test_kernel_host_survives_target_restart() {
    share
    serve --namespace "file:$work/disk.img,size=512MiB,lba=4096"
    background guest.log guest "$here/guest-restart.sh"
    local vm=$pid n
    for n in 1 2; do
        until_file "share/restart$n" "$vm"
        kill -KILL "$target"
        ended "$target" 60
        until_file "share/lost$n" "$vm"
        serve --namespace "file:$work/disk.img,size=512MiB,lba=4096"
        touch "share/restarted$n"
    done
    guest_ends "$vm"
}

# Namespaces come, grow, go and are replaced while the kernel is connected: asynchronous events notify it.
# hide_last: the last namespace of target.toml is for another host
hide_last() { printf 'hosts = ["nqn.2026-11.test:another"]\n' >>target.toml; }

test_kernel_host_sees_namespaces_change() {
    share
    port=$(free_port) nqn=nqn.2026-11.test:e2e
    configure "file:$work/a.img,size=64MiB"
    serve_configured
    background guest.log guest "$here/guest-namespaces.sh"
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
    configure "file:$work/a.img,size=128MiB" "file:$work/c.img,size=32MiB"
    hide_last
    kill -HUP "$target"
    until_file share/hidden "$vm"
    configure "file:$work/a.img,size=128MiB" "file:$work/c.img,size=32MiB"
    printf 'ana_group = 7\n' >>target.toml
    kill -HUP "$target"
    until_file share/shown "$vm"
    configure "file:$work/a.img,size=128MiB"
    kill -HUP "$target"
    guest_ends "$vm"
}

# The kernel connects to 4,096 namespaces, in lists of 1,024, and one of them goes. A guest of its own has the memory.
test_kernel_host_thousands_of_namespaces() {
    local count=4096
    mkdir share
    port=$(free_port) nqn=nqn.2026-11.test:e2e
    # thousands [NSID]: the configuration, without that namespace
    thousands() {
        printf 'address = "127.0.0.1"\nport = %s\n[[subsystem]]\nnqn = "%s"\n' "$port" "$nqn"
        seq "$count" | grep -vx "${1-0}" |
            sed 's/.*/[[subsystem.namespace]]\nnsid = &\nkind = "null"\nsize = "64MiB"/'
    }
    thousands >target.toml
    serve_configured
    background guest.log "$here/vm.sh" run -m 6144 -t 3000 -s "$work/share" -e "PORT=$port" -e "NQN=$nqn" \
        -e "COUNT=$count" "$here/guest-thousands.sh"
    local vm=$pid
    until_file share/connected "$vm" 2400
    thousands $((count / 2)) >target.toml
    kill -HUP "$target"
    guest_ends "$vm"
    grep '^measured' guest.log
}

# The kernel as administrator: a namespace is created, attached, used, detached and deleted.
test_kernel_host_manages_namespaces() {
    local host=nqn.2026-11.test:administrator
    port=$(free_port) nqn=nqn.2026-11.test:managed
    managed -a "$target_address" -s "$port" --lvstore "vols=$work/vols,size=256MiB"
    c subsystem add -n "$nqn"
    c subsystem set -n "$nqn" --administrator "$host" --namespace-store vols
    guest -e "HOST=$host" "$here/guest-manages-namespaces.sh"
    c volume list && is 'length == 0'
    alive "$target"
}

# Compare, Verify, Copy and Get LBA Status as nvme-cli sends them.
test_kernel_host_commands() {
    serve --namespace "file:$work/disk.img,size=64MiB"
    guest "$here/guest-commands.sh"
    alive "$target"
}

# Two hosts of the kernel share a disk by reservations, which outlive the target.
test_kernel_host_reservations() {
    share
    serve --namespace "file:$work/disk.img,size=64MiB"
    background guest.log guest "$here/guest-reservations.sh"
    local vm=$pid
    until_file share/reserved "$vm"
    kill -KILL "$target"
    ended "$target" 60
    serve --namespace "file:$work/disk.img,size=64MiB"
    touch share/restarted
    guest_ends "$vm"
}

# The kernel's NBD client, over four connections, on a namespace that our host attaches over two lanes: the
# target is killed and comes back, the namespace grows, and at last both are killed. The client uses blocks of 512
# bytes on a namespace of 4096: many writes are parts of blocks.
test_kernel_nbd_client() {
    share
    share_exercise
    nbd_address=$target_address
    port=$(free_port) nqn=nqn.2026-11.test:e2e
    configure "file:$work/disk.img,size=128MiB,lba=4096"
    serve_configured
    attach_tcp --lanes 2 --nbd-insecure --reconnect-delay 1
    background guest.log guest -e "PORT=${uri##*:}" -e BYTES=134217728 "$here/guest-nbd.sh"
    local vm=$pid
    until_file share/restart "$vm"
    kill -KILL "$target"
    ended "$target" 60
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
    attach_tcp --lanes 2 --nbd-insecure
    touch share/crash.done
    guest_ends "$vm"
}

# Through taps, where discovery names an address that the guest can reach: connect-all, a persistent
# discovery controller, and the event when a subsystem is added.
test_kernel_host_persistent_discovery() {
    needs_taps
    share
    subsystems() {
        printf 'address = "10.0.2.2"\n'
        printf '[[subsystem]]\nnqn = "nqn.2026-11.test:%s"\n[[subsystem.namespace]]\nnsid = 1\nkind = "mem"\nsize = "64MiB"\n' "$@"
    }
    subsystems one >target.toml
    serve_configured
    background guest.log guest "$here/guest-discovery.sh"
    local vm=$pid
    until_file share/connected "$vm"
    subsystems one two >target.toml
    kill -HUP "$target"
    guest_ends "$vm"
}

# The commands of docs/guide/first-hour.md that Linux's host needs, as they stand there, in a guest that has both ends.
test_kernel_host_first_hour() {
    share
    share_program
    mkdir share/blocks
    # The target with its volume, the part for Linux, and the end.
    awk '/^## / {title = $0} /^```/ {inside = !inside; n += inside; next}
        inside && title ~ /^## (A target|A Linux host|The end)$/ {print >sprintf("share/blocks/%02d.sh", n)}' \
        "$top/docs/guide/first-hour.md"
    [ "$(find share/blocks -name '*.sh' | wc -l)" = 4 ] || fail "blocks: $(ls share/blocks)"
    grep -q '^nvme connect' share/blocks/*.sh
    guest "$here/guest-first-hour.sh"
}
