# shellcheck shell=bash
# The harness itself.

thorough+=(guest_that_stops_is_started_anew guest_that_dies_is_started_anew)
unbooted=(env RT_VM_BOOTS= "$here/vm.sh" run) # no kernel begins

# A guest that stops on its way up is started anew, not waited for. Here its processors are never let go.
test_guest_that_stops_is_started_anew() {
    local rc=0
    RT_VM_BOOT_SECONDS=1 "${unbooted[@]}" -q -S /dev/null 2>guest.log || rc=$?
    [ $rc = 125 ] || fail "status $rc"
    [ "$(grep -c 'is not up after 1 s' guest.log)" = 3 ] || fail 'not thrice'
}

# Nor is one that dies there: this one's firmware resets the machine (writes 6 to port 0xcf9) where its processor begins,
# 16 bytes before the end.
test_guest_that_dies_is_started_anew() {
    local rc=0
    truncate -s 64K firmware
    printf '\xba\xf9\x0c\xb0\x06\xee' | dd of=firmware bs=1 seek=65520 conv=notrunc status=none
    "${unbooted[@]}" -q "-bios $work/firmware" /dev/null 2>guest.log || rc=$?
    [ $rc = 125 ] || fail "status $rc"
    [ "$(grep -c 'the guest died on its way up' guest.log)" = 3 ] || fail 'not thrice'
}
