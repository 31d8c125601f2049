# shellcheck shell=bash
# Our host's ublk devices, in a guest that has both ends.

thorough+=(kernel_ublk)
group_of[kernel_ublk]=${UBLK_KERNEL:-backports}

# In the first kernel that has the driver as it comes. UBLK_KERNEL=newest for one that resizes devices,
# =stable, after `vm.sh prepare-ublk`, for one of the first with the driver.
test_kernel_ublk() {
    share
    share_program
    share_exercise
    guest "$here/guest-ublk.sh"
}
