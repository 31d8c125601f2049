# shellcheck shell=bash disable=SC1091
# The kernel's host at our gateway to a real Ceph cluster of one machine.
. "$top/tests/lib/ceph.sh"

# The commands that docs/guide/ceph.md has for Linux's own driver, as they stand there.
test_kernel_host_by_the_ceph_guide() {
    ceph_network
    mkdir share
    local command gateways=()
    guide_commands >commands
    sed '/^# Or/,$d; 1,/^# With/d' commands >share/commands
    [ "$(wc -l <share/commands)" = 6 ] || fail "not six commands: $(cat share/commands)"
    sed '/^# With/,$d' commands >before
    while read -r -u 5 command; do
        echo "$ $command"
        case $command in
        'roadtrain serve '*) guide_serves "$command" ;;
        *) "${in_network[@]}" bash -c "$command" ;;
        esac
    done 5<before
    "${in_network[@]}" "$here/vm.sh" run -s "$work/share" "$here/guest-ceph.sh"
    guide_gateways_end
}
