# shellcheck shell=bash
# Authentication and TLS between the kernel and us, at both ends.

# Which hash with which group. Emulation takes seconds for large ones.
SOME='sha256:ffdhe2048 sha384:ffdhe4096 sha512:null'
ALL=$(echo sha{256,384,512}:{null,ffdhe2048,ffdhe3072,ffdhe4096,ffdhe6144,ffdhe8192})
linux=nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000015

# auth_keys: files of keys for the hosts and targets of each hash
auth_keys() {
    local hash whose
    mkdir -p share
    for hash in sha256 sha384 sha512; do
        for whose in host target; do
            (umask 077 && "$ROADTRAIN" keys dhchap --hash $hash >share/$hash.$whose)
        done
    done
    (umask 077 && "$ROADTRAIN" keys dhchap --hash sha256 >share/wrong.host)
}

# refused TEXT COMMAND...: ends with status 3 and one line with that text
refused() {
    local rc=0
    "${@:2}" >refused.out 2>refused.log || rc=$?
    [ "$rc" = 3 ] || fail "status $rc: $(cat refused.log)"
    [ "$(wc -l <refused.log)" = 1 ] && grep -q "$1" refused.log || fail "$(cat refused.log)"
}

# kernel_host_authenticates HASH:GROUP...: the kernel's host to a target of ours for each, which allows only that
kernel_host_authenticates() {
    local each targets=()
    auth_keys
    for each; do
        unset port
        serve --namespace mem:64MiB --require-auth --dhchap-key "$linux=share/${each%:*}.host" \
            --dhchap-ctrl-key "$linux=share/${each%:*}.target" --dhchap-hash "${each%:*}" \
            --dhchap-dhgroup "${each#*:}"
        targets+=("$port:$each")
        mv target.log "target-$port.log"
    done
    "$here/vm.sh" run -k "${AUTH_KERNEL:-backports}" -e "NQN=$nqn" -e "TARGETS=${targets[*]}" \
        -s "$work/share" "$here/guest-auth-host.sh"
    local log=target-${targets[0]%%:*}.log
    grep -q 'not authenticated.*the host has another key' "$log" || fail 'a wrong key'
    grep -q 'not authenticated.*Failure2' "$log" || fail 'a wrong key of the target'
    ! grep -q DHHC target-*.log || fail 'a key is in the log'
}

test_kernel_host_authenticates() {
    # shellcheck disable=SC2086
    kernel_host_authenticates $SOME
}

# kernel_target_authenticates HASH:GROUP...: our host to the kernel's target, as a host for each
kernel_target_authenticates() {
    auth_keys
    port=$(free_port) nqn=nqn.2024-01.test:kernel
    background kernel.log "$here/vm.sh" run -t 600 -k "${AUTH_KERNEL:-backports}" -f "$port:4420" \
        -e SIZE=64 -e "HOSTS=$*" -s "$work/share" "$here/guest-auth-target.sh"
    local vm=$pid each hash
    until_line kernel.log '^READY AUTHENTICATION' "$vm" 120
    # as HOST COMMAND [OPTIONS]: to the kernel's target, as that host
    as() { "$ROADTRAIN" "$2" -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" -q "nqn.2026-11.test:$1" "${@:3}"; }
    for each; do
        hash=${each%:*}
        as "${each/:/-}" identify --dhchap-secret "share/$hash.host" >identify.log
        as "${each/:/-}" bench --dhchap-secret "share/$hash.host" --dhchap-ctrl-secret "share/$hash.target" \
            --rw randrw --bs 4k --depth 4 --seconds 0.5 --verify --json >bench.json
        holds bench.json '.errors == 0 and .iops > 0'
    done
    each=${1/:/-} hash=${1%:*}
    refused 'the target refuses this host: authentication failed' as "$each" identify --dhchap-secret share/wrong.host
    refused 'it wants authentication' as "$each" identify
    refused 'this host refuses the target' as "$each" identify --dhchap-secret "share/$hash.host" \
        --dhchap-ctrl-secret share/wrong.host
    refused 'the target refuses this host: authentication failed' as alone identify --dhchap-secret "share/$hash.host" \
        --dhchap-ctrl-secret "share/$hash.target"
    as alone identify --dhchap-secret "share/$hash.host" >identify.log
    touch share/end
    wait "$vm" || { cat kernel.log; fail 'the guest is not content'; }
    for each in 'host response mismatch' 'failure1 (1)' 'no ctrl key'; do
        grep -qF "$each" share/dmesg || { tail -n 30 share/dmesg; fail "the kernel does not say '$each'"; }
    done
    [ "$(grep -c 'host authenticated' share/dmesg)" -ge $((3 * $#)) ] || fail 'not on both queues'
    [ "$(grep -c 'ctrl authenticated' share/dmesg)" -ge $((2 * $#)) ] || fail 'the target not on both queues'
}

test_kernel_target_authenticates() {
    # shellcheck disable=SC2086
    kernel_target_authenticates $SOME
}

# Minutes, so only when they are named.
case ${1-} in
*_in_all_groups*)
    # shellcheck disable=SC2086
    test_kernel_host_authenticates_in_all_groups() { kernel_host_authenticates $ALL; }
    # shellcheck disable=SC2086
    test_kernel_target_authenticates_in_all_groups() { kernel_target_authenticates $ALL; }
    ;;
esac
