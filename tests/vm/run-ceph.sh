# shellcheck shell=bash disable=SC1091
# The kernel's host at our gateway to a real Ceph cluster of one machine.
. "$top/tests/lib/ceph.sh"

for name in kernel_host_by_the_ceph_guide kernel_host_over_ceph_survives_crashes; do
    thorough+=("$name")
    group_of[$name]=${RT_VM_KERNEL:-stable}
done

# ceph_bridge: the guest reaches the network of the cluster by way of 10.0.2.9
ceph_bridge() {
    ip link add ceph type veth peer name guests netns "rt-ceph-$$"
    ip link set ceph master br0 up
    ip -n "rt-ceph-$$" addr add 10.0.2.9/24 dev guests
    ip -n "rt-ceph-$$" link set guests up
}

# guide_image [OPTIONS of `cluster.sh start`]: the cluster, the image and both gateways as docs/guide/ceph.md has them; leaves
# the gateways' commands in $first and $second, and those of Linux's own driver in share/commands
guide_image() {
    local command
    needs_taps
    ceph_network "$@"
    ceph_bridge
    share
    guide_commands >commands
    sed '/^# Or/,$d; 1,/^# With/d' commands >share/commands
    [ "$(wc -l <share/commands)" = 6 ] || fail "not six commands: $(cat share/commands)"
    sed '/^# With/,$d' commands >before
    while read -r -u 5 command; do
        echo "$ $command"
        case $command in
        'roadtrain serve '*)
            guide_serves "$command"
            second=${first:+$command} first=${first:-$command}
            ;;
        *) "${in_network[@]}" bash -c "$command" ;;
        esac
    done 5<before
}

# The commands that docs/guide/ceph.md has for Linux's own driver, as they stand there.
test_kernel_host_by_the_ceph_guide() {
    local gateways=() first='' second=''
    guide_image
    guest "$here/guest-ceph.sh"
    guide_gateways_end
}

# An OSD and both gateways are killed, one after the other, while the kernel's host has a file system with load on it.
test_kernel_host_over_ceph_survives_crashes() {
    local gateways=() first='' second='' vm nqn=nqn.2025-01.io.example:disk
    guide_image --store bluestore
    cp "$here/guest-load.sh" share/load.sh
    background guest.log guest "$here/guest-ceph-crashes.sh"
    vm=$pid
    until_file share/osd "$vm"
    "${in_network[@]}" "$cluster" kill-osd "$work/ceph" 0
    sleep 3
    "${in_network[@]}" "$cluster" start-osd "$work/ceph" 0
    touch share/osd.done
    until_file share/gateway "$vm"
    gateway_killed 0
    touch share/gateway.done
    until_file share/back "$vm"
    guide_serves "$first"
    gateway_killed 1
    touch share/back.done
    guest_ends "$vm"
}

# gateway_killed N: with -9
gateway_killed() {
    kill -KILL "${gateways[$1]}"
    ended "${gateways[$1]}" 60
}
