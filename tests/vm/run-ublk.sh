# shellcheck shell=bash
# Our host's ublk devices, in a guest that has both ends.

thorough+=(kernel_ublk mirror_by_the_guide)
group_of[kernel_ublk]=${UBLK_KERNEL:-backports}
group_of[mirror_by_the_guide]=backports

# In the first kernel that has the driver as it comes. UBLK_KERNEL=newest for one that resizes devices,
# =stable, after `vm.sh prepare-ublk`, for one of the first with the driver.
test_kernel_ublk() {
    share
    share_program
    share_exercise
    guest "$here/guest-ublk.sh"
}

# md RAID 1 over two attachments, by the page's commands, while targets are killed.
test_mirror_by_the_guide() {
    local name
    share
    share_program
    mkdir share/blocks
    for name in attach create repair assemble end; do guide_block mirrors.md "sh $name" >"share/blocks/$name"; done
    guest "$here/guest-mirror.sh"
}
