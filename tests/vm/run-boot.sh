# shellcheck shell=bash
# The harness itself.

# A guest that stops on its way up is started anew, not waited for. Here its processors are never let go.
test_guest_that_stops_is_started_anew() {
    local rc=0
    RT_VM_BOOT_SECONDS=1 "$here/vm.sh" run -q -S /dev/null 2>guest.log || rc=$?
    [ $rc = 125 ] || fail "status $rc"
    [ "$(grep -c 'is not up after 1 s' guest.log)" = 3 ] || fail 'not thrice'
}

# Nor is one that dies there: this one's memory does not hold its own files. Now and then such a guest stops for ever
# behind its panic, and is ended.
test_guest_that_dies_is_started_anew() {
    local rc=0
    "$here/vm.sh" run -q '-m 160' /dev/null >guest.log 2>&1 || rc=$?
    [ $rc = 125 ] || fail "status $rc"
    [ "$(grep -cE 'the guest (died on its way up|is not up after)' guest.log)" = 3 ] || fail 'not thrice'
    grep -q 'the guest died on its way up' guest.log || fail 'no try was seen to die'
}
