# shellcheck shell=bash
# Machines as docs/guide/libvirt.md and docs/guide/proxmox.md have them: libvirt itself starts the page's domain, for a user
# without privileges; QEMU gets the options of the other page.

thorough+=(libvirt_runs_the_page proxmox_arguments kernel_host_lvm)
group_of[kernel_host_lvm]=${RT_VM_KERNEL:-stable}

# attach_as FRONT NSID [OPTIONS]: for the user of this test; its log is NSID.log, its process $attached
attach_as() {
    background "$2.log" "${as_user[@]}" "$program" attach -a "$target_address" -s "$port" -n "$nqn" --nsid "$2" --as "$1" "${@:3}"
    attached=$pid
    until_line "$2.log" '^ready' "$attached"
}

# has_lines FILE NAME: the file has what the guest has written to the disk of that name
has_lines() {
    awk -v name="$2" 'BEGIN {for (n = 0; n < 65536; n++) printf "the disk %-6s\n", name}' >lines
    cmp -n 1048576 lines "$1" || fail "$1 has other data than $2"
}

# has_disk NSID NAME: the same of a namespace
has_disk() {
    attach --nsid "$1"
    nbdcopy "$uri" "nsid$1"
    has_lines "nsid$1" "$2"
    "$ROADTRAIN" detach --all
    ended "$attached" 20
}

# libvirt_domain: the page's domain, under emulation, with a kernel of ours and this test's paths
libvirt_domain() {
    # One more than its devices need: a disk is added while it runs.
    local ports=''
    for _ in {1..10}; do ports+="<controller type='pci' model='pcie-root-port'/>"; done
    guide_block libvirt.md xml | sed -e "s|<domain type='kvm'>|<domain type='qemu'>|" \
        -e "s|/run/guest/|$work/home/|; s|/dev/disk/by-id/nvme-[^']*|$1|" \
        -e "${reconnects:-/<reconnect delay=/d}" \
        -e "s|</os>|<kernel>$work/home/boot/kernel</kernel><initrd>$work/home/boot/initrd</initrd><cmdline>$(<home/boot/append)</cmdline>&|" \
        -e "s|</features>|&<cpu mode='maximum'><feature policy='disable' name='erms'/><feature policy='disable' name='fsrm'/><feature policy='disable' name='la57'/></cpu><on_reboot>destroy</on_reboot>|" \
        -e "s|<devices>|&<controller type='pci' index='0' model='pcie-root'/>$ports|" \
        -e "s|</devices>|<serial type='file'><source path='$work/home/console.log'/></serial>&|" \
        -e "s|</devices>|<serial type='file'><source path='$work/home/status'/></serial>&|"
}

# another_disk: the page's NBD disk, as a disk of its own
another_disk() {
    guide_block libvirt.md xml | sed -e "${reconnects:-/<reconnect delay=/d}" | sed -n "/<disk type='network'/,/<\/disk>/p" |
        sed "s|/run/guest/nbd.sock|$work/home/another.sock|; s|'vda'|'vdd'|"
}

# guest_says PATTERN: its console does, soon
guest_says() { until_line home/console.log "$1" "$libvirtd" 600; }

# more_rounds LOG PID: the guest writes all disks once more after now
more_rounds() {
    local now
    now=$(grep -c -- '--- .* round' "$1" || true)
    until_line "$1" "^--- .* round $((now + 2))\b" "$2" 600
}

# restart_nbd: the process of the NBD disk is killed, and started again; it is $nbd
restart_nbd() {
    kill -KILL "$nbd"
    ended "$nbd" 60
    attach_as "nbd:unix:$work/home/nbd.sock" 1
    nbd=$attached
}

test_libvirt_runs_the_page() {
    local as_user user program libvirtd attached n state reconnects=''
    command -v virsh >/dev/null && command -v libvirtd >/dev/null || skip 'no libvirt: scripts/setup.sh libvirt'
    # libvirt 9.1 and later know the element for NBD: a substitution that does nothing keeps it.
    ! dpkg --compare-versions "$(virsh --version)" ge 9.1 || reconnects='s/^//'
    become_user
    mkdir home/boot
    "$here/vm.sh" files -e DISKS='vda vdb vdc' -e LAST=vdd home/boot "$here/guest-disks.sh"
    serve --namespace mem:16MiB --namespace mem:16MiB,lba=4096 --namespace mem:16MiB --namespace mem:16MiB
    attach_as "nbd:unix:$work/home/nbd.sock" 1
    local nbd=$attached
    attach_as "vhost-user:$work/home/vhost.sock" 2 --lanes 2 --cores 0,1
    local vhost=$attached
    attach_as "nbd:unix:$work/home/another.sock" 4
    local another=$attached
    # A block device of this machine takes the place of the kernel's NVMe device.
    truncate -s 16M home/block
    local block
    block=$(losetup --find --show home/block 2>losetup.log) || skip "no loop device here: $(cat losetup.log)"
    # shellcheck disable=SC2064
    trap "losetup --detach $block" EXIT
    cp -a "$block" home/disk && block=$work/home/disk
    chown -R "$user:$user" home/boot home/disk
    libvirt_domain "$block" >home/domain.xml
    another_disk >home/another.xml
    xmllint --noout home/domain.xml
    local virsh=("${as_user[@]}" virsh --connect qemu:///session)
    background libvirtd.log "${as_user[@]}" libvirtd
    libvirtd=$pid
    eventually 60 "${virsh[@]}" version
    "${virsh[@]}" define --validate home/domain.xml
    "${virsh[@]}" start guest
    guest_says '^--- .* round 1\b'
    for n in 1 2; do
        kill -KILL "$vhost"
        ended "$vhost" 60
        attach_as "vhost-user:$work/home/vhost.sock" 2 --lanes 2 --cores 0,1
        vhost=$attached
        [ -z "$reconnects" ] || restart_nbd
        more_rounds home/console.log "$libvirtd"
    done
    "${virsh[@]}" attach-device guest home/another.xml
    guest_says '^--- .* vdd written'
    "${virsh[@]}" detach-device guest home/another.xml
    # Between "running" and "shut off" it may be "in shutdown".
    for ((n = 0; n < 1200; n++)); do
        state=$("${virsh[@]}" domstate guest)
        [ "$state" != 'shut off' ] || break
        sleep 0.1
    done
    [ "$state" = 'shut off' ] && [ "$(tail -n 1 home/status | tr -d '\r')" = 0 ] || fail "$state: $(tail -n 30 home/console.log)"
    kill -TERM "$nbd" "$vhost" "$another"
    for n in "$nbd" "$vhost" "$another"; do ended "$n" 20; done
    has_disk 1 vda
    has_disk 2 vdb
    has_disk 4 vdd
    has_lines home/block vdc
    "${virsh[@]}" undefine guest
}

# Options of the page for QEMU, each in a guest of its own.
test_proxmox_arguments() {
    local as_user user program attached kind nsid=0 nbd vm
    become_user
    mkdir share
    serve --namespace mem:16MiB --namespace mem:16MiB,lba=4096
    for kind in nbd vhost-user; do
        nsid=$((nsid + 1))
        case $kind in
        nbd) attach_as "nbd:unix:$work/home/nbd.sock" $nsid ;;
        *) attach_as "vhost-user:$work/home/vhost.sock" $nsid ;;
        esac
        nbd=$attached
        guide_block proxmox.md "args $kind" | sed "s|/run/guest/|$work/home/|" >args
        touch share/more
        background guest.log "$here/vm.sh" run -s "$work/share" -e DISKS=vda -e LAST= -q "$(tr '\n' ' ' <args)" \
            "$here/guest-disks.sh"
        vm=$pid
        until_line guest.log '^--- .* round 1\b' "$vm" 600
        if [ $kind = nbd ]; then
            restart_nbd
            more_rounds guest.log "$vm"
        fi
        rm share/more
        guest_ends "$vm"
        kill -TERM "$nbd"
        ended "$nbd" 20
        has_disk $nsid vda
    done
}

# The commands of the page in the guest, whose kernel is connected; the namespace then grows.
test_kernel_host_lvm() {
    local uuid=6b1a5e1c-4c52-4a0e-9d0e-3a4f5b6c7d8e
    command -v lvm >/dev/null || skip 'no LVM: scripts/setup.sh libvirt'
    share
    mkdir share/lib
    cp "$(command -v lvm)" share
    # shellcheck disable=SC2046
    cp -L $(ldd "$(command -v lvm)" | grep -o '/[^ ]*') share/lib
    guide_block proxmox.md 'sh lvm' >share/commands
    grep -q "nvme-uuid.$uuid" share/commands || fail 'the page has another UUID'
    port=$(free_port) nqn=nqn.2026-11.test:e2e
    configure "file:$work/disk.img,size=256MiB,uuid=$uuid"
    serve_configured
    background guest.log guest "$here/guest-lvm.sh"
    local vm=$pid
    until_file share/grow "$vm"
    configure "file:$work/disk.img,size=384MiB,uuid=$uuid"
    kill -HUP "$target"
    guest_ends "$vm"
}
