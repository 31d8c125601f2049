# shellcheck shell=bash
# Our host's ublk devices, in a guest that has both ends.

# In the kernel that has the driver as it comes; UBLK_KERNEL=stable after `vm.sh prepare-ublk`.
test_kernel_ublk() {
    mkdir -p share/lib
    cp "$ROADTRAIN" share/roadtrain
    cp "$EXERCISE" share/exercise # loads nothing else
    # shellcheck disable=SC2046
    cp -L $(ldd "$ROADTRAIN" | grep -o '/[^ ]*') share/lib
    "$here/vm.sh" run -k "${UBLK_KERNEL:-backports}" -s "$work/share" "$here/guest-ublk.sh"
}
