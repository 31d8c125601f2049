# shellcheck shell=bash
# The harness itself.

# A guest that stops on its way up is started anew, not waited for. Here its processors are never let go.
test_guest_that_stops_is_started_anew() {
    local rc=0
    RT_VM_BOOT_SECONDS=1 "$here/vm.sh" run -q -S /dev/null 2>guest.log || rc=$?
    [ $rc = 125 ] || fail "status $rc"
    [ "$(grep -c 'is not up after 1 s' guest.log)" = 3 ] || fail 'not thrice'
}
