# shellcheck shell=bash
# Disks that are encrypted below a target.

thorough+=(encryption_by_the_guide)
group_of[encryption_by_the_guide]=${RT_VM_KERNEL:-stable}

# dm-crypt below the target, by the page's commands, with the kernel's host.
test_encryption_by_the_guide() {
    local name
    share
    share_program
    mkdir share/blocks
    for name in format open serve grow close; do guide_block encryption.md "sh $name" >"share/blocks/$name"; done
    guest "$here/guest-encryption.sh"
}
