# shellcheck shell=bash
# Our host's ublk devices, in a guest that has both ends.

# In the first kernel that has the driver as it comes. UBLK_KERNEL=newest for one that resizes devices,
# =stable, after `vm.sh prepare-ublk`, for one of the first with the driver.
test_kernel_ublk() {
    share_program
    cp "$EXERCISE" share/exercise # loads nothing else
    "$here/vm.sh" run -k "${UBLK_KERNEL:-backports}" -s "$work/share" "$here/guest-ublk.sh"
}
