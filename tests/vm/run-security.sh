# shellcheck shell=bash
# Authentication and TLS between the kernel and us, at both ends.

auth_kernel=${AUTH_KERNEL:-backports} tls_kernel=${TLS_KERNEL:-forky}
for name in kernel_{host,target}_authenticates{,_in_all_groups}; do group_of[$name]=$auth_kernel; done
for name in kernel_{host,target}_tls kernel_host_by_the_guide tls_records_by_the_kernel; do
    group_of[$name]=$tls_kernel
    thorough+=("$name")
done
thorough+=(kernel_{host,target}_authenticates)

# Which hash with which group. Emulation takes seconds for large ones.
SOME='sha256:ffdhe2048 sha384:ffdhe4096 sha512:null'
ALL=$(echo sha{256,384,512}:{null,ffdhe2048,ffdhe3072,ffdhe4096,ffdhe6144,ffdhe8192})
linux=nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000015

# auth_keys: files of keys for the hosts and targets of each hash
auth_keys() {
    local hash whose
    [ -e share ] || share
    for hash in sha256 sha384 sha512; do
        for whose in host target; do
            (umask 077 && "$ROADTRAIN" keys dhchap --hmac $hash >share/$hash.$whose)
        done
    done
    (umask 077 && "$ROADTRAIN" keys dhchap --hmac sha256 >share/wrong.host)
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
    guest -e "TARGETS=${targets[*]}" "$here/guest-auth-host.sh"
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
    script=guest-auth-target.sh ready=' AUTHENTICATION' kernel_target -e SIZE=64 -e "HOSTS=$*"
    local each hash
    # as HOST COMMAND [OPTIONS]: to the kernel's target, as that host
    as() { "$ROADTRAIN" "$2" -t tcp -a "$target_address" -s "$port" -n "$nqn" -q "nqn.2026-11.test:$1" "${@:3}"; }
    for each; do
        hash=${each%:*}
        as "${each/:/-}" identify --dhchap-secret "share/$hash.host" >identify.log
        as "${each/:/-}" bench --dhchap-secret "share/$hash.host" --dhchap-ctrl-secret "share/$hash.target" \
            --rw randrw --bs 4k --depth 4 --ios 200 --verify --json >bench.json
        holds bench.json '.errors == 0 and .iops > 0'
    done
    each=${1/:/-} hash=${1%:*}
    # The kernel's target closes the connection right after its Failure1, which now and then is not sent any more.
    local rejected='the target refuses this host: authentication failed|connection closed by the target'
    refused "$rejected" as "$each" identify --dhchap-secret share/wrong.host
    refused 'it wants authentication' as "$each" identify
    refused 'this host refuses the target' as "$each" identify --dhchap-secret "share/$hash.host" \
        --dhchap-ctrl-secret share/wrong.host
    refused "$rejected" as alone identify --dhchap-secret "share/$hash.host" \
        --dhchap-ctrl-secret "share/$hash.target"
    as alone identify --dhchap-secret "share/$hash.host" >identify.log
    kernel_target_ends
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

# tls_guest: the kernel that has TLS, with tlshd; Debian's next release changes, and may not be there
tls_guest() { ! is_missing "$tls_kernel" || skip "no guest of Debian $tls_kernel"; }

# tls_keys: share/256.tls, 384.tls, wrong.tls and new.tls
tls_keys() {
    [ -e share ] || share
    (umask 077 && "$ROADTRAIN" keys tls >share/256.tls && "$ROADTRAIN" keys tls --hmac sha384 >share/384.tls &&
        "$ROADTRAIN" keys tls >share/wrong.tls && "$ROADTRAIN" keys tls >share/new.tls)
}

# Both suites, discovery, what is refused; then the target is killed and comes back, and then its key changes. At the
# end another target, with a subsystem that requires TLS, where the host makes its key by authenticating.
test_kernel_host_tls() {
    tls_guest
    tls_keys
    auth_keys
    port=$(free_port) nqn=nqn.2026-11.test:e2e
    "$ROADTRAIN" serve -a "$target_address" -s "$port" -n "$nqn" --namespace mem:64MiB --tls allowed --dhchap-hash sha384 \
        --dhchap-key "nqn.2026-11.test:256=share/sha384.host" \
        --dhchap-ctrl-key "nqn.2026-11.test:256=share/sha384.target" --print-config >target.toml
    sed -i '/^\[\[subsystem\]\]/a require_tls = true' target.toml
    serve_configured
    mv target.log concat.log
    local concat=$port
    cp share/256.tls now.tls
    port=$(free_port) nqn=nqn.2026-11.test:e2e
    "$ROADTRAIN" serve -a "$target_address" -s "$port" -n "$nqn" --namespace "file:$work/disk.img,size=64MiB" \
        --tls required --tls-key "nqn.2026-11.test:256=$work/now.tls" \
        --tls-key "nqn.2026-11.test:384=$work/share/384.tls" --print-config >target.toml
    serve_configured
    background guest.log guest -e "CONCAT_PORT=$concat" "$here/guest-tls-host.sh"
    local vm=$pid
    until_file share/restart "$vm"
    grep -q 'refuses the host: no key for the identity' target.log || fail 'a wrong key'
    grep -q 'does not begin with TLS' target.log || fail 'without TLS'
    kill -KILL "$target"
    ended "$target" 60
    serve_configured
    touch share/restarted
    until_file share/rekey "$vm"
    cp share/new.tls new && chmod 600 new && mv new now.tls
    kill -HUP "$target"
    until_line target.log reloaded "$target"
    touch share/rekeyed
    guest_ends "$vm"
    grep -q 'authenticated, to come again with TLS' concat.log || fail 'no key was made'
    ! grep -q 'DHHC\|NVMeTLSkey' concat.log target.log || fail 'a key is in the log'
}

# The same with our host and the kernel's target, which has another port for hosts that make their key.
test_kernel_target_tls() {
    tls_guest
    tls_keys
    auth_keys
    local concat=${kernel_ports[1]} suite options hosts=nqn.2026-11.test
    script=guest-tls-target.sh ready=' TLS' kernel_target -e SIZE=64
    # as HOST KEY COMMAND [OPTIONS]: to the kernel's target over TLS
    as() {
        "$ROADTRAIN" "$3" -t tcp -a "$target_address" -s "$port" -q "$hosts:$1" --tls --tls-key "share/$2.tls" "${@:4}"
    }
    # order WHAT: has the guest do it
    order() {
        touch "share/$1"
        until_gone "share/$1"
    }
    for suite in 256 384; do
        as $suite $suite discover --json >discover.json
        holds discover.json '[.. | .tls? // empty] | any(. == "required")'
        options='--bs 4k --size 1MiB --lanes 2'
        [ $suite = 256 ] || options='--bs 256k --size 16MiB --hdr-digest --data-digest'
        # shellcheck disable=SC2086
        as $suite $suite bench -n "$nqn" --rw randrw --depth 8 --ios 200 --verify --json $options >bench.json
        holds bench.json '.errors == 0 and .blocks_checked > 0'
    done
    refused 'TLS handshake' as 256 wrong identify -n "$nqn"
    refused . "$ROADTRAIN" identify -t tcp -a "$target_address" -s "$port" -n "$nqn" -q $hosts:256
    # A guest that is slow must not lose the connection after its key has changed.
    attach -q $hosts:256 --tls --tls-key share/256.tls --reconnect-delay 1 --keep-alive-tmo 60
    qemu-io -f raw -c 'write -P 7 1M 64k' "$uri"
    order away
    background io.log qemu-io -f raw -c 'read -P 7 1M 64k' -c 'write -P 8 2M 64k' "$uri"
    local io=$pid
    sleep 1
    alive "$io" || fail 'a request did not wait for the target'
    order back
    ended "$io" 60
    wait "$io" || { cat io.log; fail 'after the target came back'; }
    qemu-io -f raw -c 'read -P 8 2M 64k' "$uri"
    order rekey
    qemu-io -f raw -c 'read -P 8 2M 64k' "$uri"
    refused 'TLS handshake' as 256 256 identify -n "$nqn"
    as 256 new identify -n "$nqn" >identify.log
    as 384 384 identify -n "$nqn" >identify.log
    # concatenates SUITE COMMAND KEY [OPTIONS]: makes the key by authenticating
    concatenates() {
        "$ROADTRAIN" "$2" -t tcp -a "$target_address" -s "$concat" -n "$nqn" -q "$hosts:concat-$1" --concat \
            --dhchap-secret "share/$3.host" "${@:4}"
    }
    for suite in 256 384; do
        concatenates $suite bench sha$suite --rw randrw --bs 4k --size 1MiB --lanes 2 --depth 8 --ios 200 --verify \
            --json >bench.json
        holds bench.json '.errors == 0 and .blocks_checked > 0'
    done
    refused 'the target refuses this host: authentication failed|connection closed by the target' \
        concatenates 256 identify wrong
    # The kernel proves that it has its key, but makes no PSK for a host that requests one.
    refused 'TLS handshake: the target closed the connection' concatenates 256 identify sha256 \
        --dhchap-ctrl-secret share/sha256.target
    refused 'this host refuses the target' concatenates 256 identify sha256 --dhchap-ctrl-secret share/wrong.host
    end_all "$attached"
    kernel_target_ends
}

# The commands that docs/guide/security.md has for a Linux host, as they stand there, in a guest that has both ends.
test_kernel_host_by_the_guide() {
    tls_guest
    share
    awk '/^## / {here = /in five commands$/ && /Linux/} here && sub(/^    /, "") {
            while (sub(/\\$/, "")) {line = $0; getline; sub(/^ +/, ""); $0 = line $0}
            print
        }' "$top/docs/guide/security.md" >share/commands
    [ "$(wc -l <share/commands)" = 5 ] || fail "not five commands: $(cat share/commands)"
    share_program
    guest "$here/guest-guide.sh"
}

# Both ends are ours, and their records the kernel's: outside of the guest it may have no TLS.
test_tls_records_by_the_kernel() {
    tls_guest
    tls_keys
    share_program
    guest "$here/guest-kernel-tls.sh"
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
