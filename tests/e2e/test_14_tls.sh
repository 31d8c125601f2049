# shellcheck shell=bash
# TLS 1.3 with pre-shared keys at both ends: data, refusals, keys that change, another program's TLS.

hostnqn=nqn.2026-11.test:host

# tls_keys: files of keys for host.tls (AES-128), wide.tls (AES-256) and wrong.tls
tls_keys() {
    (umask 077 && "$ROADTRAIN" keys tls >host.tls && "$ROADTRAIN" keys tls --hmac sha384 >wide.tls &&
        "$ROADTRAIN" keys tls >wrong.tls)
}

# as_host COMMAND KEY [OPTIONS]: over TLS with that key
as_host() {
    "$ROADTRAIN" "$1" -a 127.0.0.1 -s "$port" --tls --tls-key "$2" -q "$hostnqn" "${@:3}"
}

# The other suite: test_tls_openssl_handshake.
test_tls_data() {
    tls_keys
    serve --namespace mem:64MiB --namespace "file:$work/disk.img,size=64MiB,lba=4096" --tls required \
        --tls-key "$hostnqn=wide.tls"
    as_host discover wide.tls --json >discover.json
    holds discover.json '[.. | .tls? // empty] | length == 2 and all(. == "required")'
    as_host identify wide.tls -n "$nqn" >identify.log
    as_host list wide.tls --json >list.json
    holds list.json '[.. | .nsid? // empty] == [1, 2]'
    for nsid in 1 2; do
        as_host bench wide.tls -n "$nqn" --nsid $nsid --rw randrw --bs 4k --depth 32 --lanes 2 --ios 8000 --size 8MiB --verify \
            --json >bench.json
        holds bench.json '.errors == 0 and .blocks_checked > 0'
        as_host bench wide.tls -n "$nqn" --nsid $nsid --rw randrw --bs 128k --depth 8 --ios 800 --size 8MiB --verify \
            --json >bench.json
        holds bench.json '.errors == 0 and .blocks_checked > 0'
    done
    as_host attach wide.tls -n "$nqn" --as "nbd:unix:$work/a.sock" --background >attach.out
    eventually 20 prints '[.[].subsystems[].controllers[] | .transport, .auth] == ["tls", null]' \
        env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --json
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status >status.txt
    grep -q "^  $nqn  for any host with a TLS key\$" status.txt || fail "$(cat status.txt)"
    "$ROADTRAIN" detach --all >detach.out
    ! grep -q NVMeTLSkey target.log || fail 'a key is in the log'
}

test_tls_bench_makes_its_own_key() {
    "$ROADTRAIN" bench --namespace mem:16MiB --tls --rw randrw --bs 4k --depth 32 --ios 8000 --size 8MiB --verify --json >bench.json
    holds bench.json '.errors == 0 and .blocks_checked > 0'
    ! ls "$work"/roadtrain-bench-*.tls 2>/dev/null || fail 'its key is left'
}

test_tls_refusals() {
    tls_keys
    serve --namespace mem:64MiB --tls required --tls-key "$hostnqn=host.tls"
    refused "the target refuses this host's key" as_host identify wrong.tls -n "$nqn"
    refused "the target refuses this host's key" "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" --tls \
        --tls-key host.tls -q nqn.2026-11.test:other -n "$nqn"
    grep -q 'this target refuses the host: no key for the identity NVMe1R01 nqn.2026-11.test:other' target.log
    refused 127.0.0.1 "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -q "$hostnqn" -n "$nqn"
    grep -q 'does not begin with TLS' target.log
}

# The key for authentication makes that for TLS; a wrong one is refused.
test_tls_concatenation() {
    tls_keys
    (umask 077 && "$ROADTRAIN" keys dhchap >host.key && "$ROADTRAIN" keys dhchap >target.key)
    # concat COMMAND KEY [OPTIONS]: with an authentication that makes the key for TLS
    concat() {
        "$ROADTRAIN" "$1" -a 127.0.0.1 -s "$port" -n "$nqn" -q "$hostnqn" --concat --dhchap-secret "$2" "${@:3}"
    }
    serve --namespace mem:64MiB --tls allowed --dhchap-key "$hostnqn=host.key" --dhchap-ctrl-key "$hostnqn=target.key" \
        --dhchap-hash sha384
    concat bench host.key --dhchap-ctrl-secret target.key --rw randrw --bs 4k --depth 32 --lanes 2 --ios 8000 --size 8MiB --verify \
        --json >bench.json
    holds bench.json '.errors == 0 and .blocks_checked > 0'
    grep -q 'authenticated, to come again with TLS' target.log
    "$ROADTRAIN" attach -a 127.0.0.1 -s "$port" -n "$nqn" -q "$hostnqn" --dhchap-secret host.key \
        --as "nbd:unix:$work/a.sock" --background >attach.out
    eventually 20 prints '[.[].subsystems[].controllers[] | .transport, .auth.hash] == ["tcp", "sha384"]' \
        env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --json
    "$ROADTRAIN" detach --all >detach.out
    refused 'the target refuses this host: authentication failed' concat identify target.key
    ! grep -q 'DHHC\|NVMeTLSkey' target.log || fail 'a key is in the log'
    "$ROADTRAIN" bench --namespace mem:16MiB --concat --rw randrw --bs 4k --ios 8000 --size 8MiB --verify --json >bench.json
    holds bench.json '.errors == 0 and .blocks_checked > 0'
    local rc=0
    "$ROADTRAIN" identify -a 127.0.0.1 -n nqn.x:y --concat 2>error.log || rc=$?
    [ "$rc" = 2 ] && grep -q 'needs --dhchap-secret' error.log
}

test_tls_command_lines() {
    tls_keys
    local rc=0
    "$ROADTRAIN" serve -a 127.0.0.1 -s 0 -n nqn.x:y --namespace mem:1MiB --tls required 2>error.log || rc=$?
    [ "$rc" = 2 ] && grep -q 'tls-key' error.log
    rc=0
    "$ROADTRAIN" serve -a 127.0.0.1 -s 0 -n nqn.x:y --namespace mem:1MiB --tls-key "$hostnqn=host.tls" \
        2>error.log || rc=$?
    [ "$rc" = 2 ] && grep -q 'needs --tls' error.log
    rc=0
    "$ROADTRAIN" identify -a 127.0.0.1 -n nqn.x:y --tls 2>error.log || rc=$?
    [ "$rc" = 3 ] && grep -q 'needs --tls-key' error.log
    chmod 644 host.tls
    "$ROADTRAIN" identify -a 127.0.0.1 -s 1 -n nqn.x:y --tls --tls-key host.tls 2>error.log || true
    grep -q 'chmod 600 host.tls' error.log
    "$ROADTRAIN" serve -a 127.0.0.1 -s 0 -n nqn.x:y --namespace mem:1MiB --tls allowed \
        --tls-key "$hostnqn=host.tls" --print-config >tls.toml 2>/dev/null
    grep -q 'mode = "allowed"' tls.toml && ! grep -q NVMeTLSkey tls.toml
}

# session CODE PSK: session.pem, by which openssl has a PSK for that suite; its -psk is for AES-128 only
session() {
    printf '%s\n' 'asn1 = SEQUENCE:session' '[session]' 'version = INTEGER:1' 'tls = INTEGER:0x304' \
        "suite = FORMAT:HEX,OCTETSTRING:$1" 'id = FORMAT:HEX,OCTETSTRING:00' \
        "psk = FORMAT:HEX,OCTETSTRING:$2" >session.cnf
    openssl asn1parse -genconf session.cnf -noout -out session.der
    { echo '-----BEGIN SSL SESSION PARAMETERS-----' && base64 -w 64 session.der &&
        echo '-----END SSL SESSION PARAMETERS-----'; } >session.pem
}

# Another TLS: its handshake ends, with the one cipher suite that the key is for. A wrong PSK, an identity that
# nobody has and the other suite do not pass.
test_tls_openssl_handshake() {
    local key suite code other identity psk text
    tls_keys
    # client PSK IDENTITY SUITE TEXT: what openssl then says
    client() {
        local with=(-psk "$1")
        [ $key = host ] || { session $code "$1" && with=(-psk_session session.pem); }
        { sleep 0.2; } | timeout 20 openssl s_client -connect "127.0.0.1:$port" -tls1_3 "${with[@]}" \
            -psk_identity "$2" -ciphersuites "$3" >openssl.log 2>&1 || true
        grep -q "$4" openssl.log || fail "$key: $(tail -20 openssl.log)"
    }
    for key in host wide; do
        suite=TLS_AES_128_GCM_SHA256 code=1301 other=TLS_AES_256_GCM_SHA384
        [ $key = host ] || { other=$suite suite=TLS_AES_256_GCM_SHA384 code=1302; }
        unset port
        serve --namespace mem:64MiB --tls required --tls-key "$hostnqn=$key.tls"
        "$ROADTRAIN" keys show $key.tls --hostnqn "$hostnqn" --nqn "$nqn" --reveal >shown
        { read -r identity && read -r psk; } <shown
        client "$psk" "$identity" $suite "Reused, TLSv1.3, Cipher is $suite"
        text='alert number 51'
        client "$(tr 0-9a-f 1-9a-f0 <<<"$psk")" "$identity" $suite "$text"
        client "$psk" "${identity/:host/:other}" $suite "$text"
        client "$psk" "${identity%?????}AAAA=" $suite "$text"
        client "$psk" "$identity" $other 'Cipher is (NONE)'
        kill "$target" && ended "$target" 10
    done
}

# recipe TITLE: commands of that section of the guide, but for those of other programs
recipe() {
    awk -v title="## $1" '/^## / {here = $0 == title} here && sub(/^    /, "") {
            while (sub(/\\$/, "")) {line = $0; getline; sub(/^ +/, ""); $0 = line $0}
            print
        }' "$top/docs/guide/security.md" | grep '^(\?umask\|^roadtrain'
}

# The commands of the guide, as they stand there, in a network of their own that has its address.
test_tls_recipes() {
    [ "$(id -u)" = 0 ] || skip 'network namespaces need root'
    local title command network=rt-guide-$$
    ip netns add "$network" 2>/dev/null || skip 'no network namespaces here'
    # shellcheck disable=SC2064
    trap "ip netns del $network" EXIT
    ip -n "$network" link set lo up
    ip -n "$network" addr add 192.0.2.1/32 dev lo
    mkdir bin
    ln -s "$ROADTRAIN" bin/roadtrain
    PATH=$work/bin:$PATH
    (umask 077 && roadtrain keys dhchap >host.key)
    for title in 'TLS between one target and one host' 'TLS with a key that authentication makes'; do
        rm -f disk.sock
        recipe "$title" | sed "s|/tmp/|$work/|" >commands
        [ "$(wc -l <commands)" -ge 2 ] || fail "no commands: $title"
        while read -r command; do
            case $command in
            'roadtrain serve '* | 'roadtrain attach '*)
                background command.log ip netns exec "$network" bash -c "exec $command"
                until_line command.log '^ready' "$pid"
                ;;
            *) bash -c "$command" ;;
            esac
        done <commands
        qemu-io -f raw -c 'write -P 7 1M 64k' -c 'read -P 7 1M 64k' "nbd+unix:///?socket=$work/disk.sock" >io.log
        # shellcheck disable=SC2046
        end_all $(<.pids) && : >.pids
    done
}

# A key of TLS and one of authentication are changed as the guide says: both are good in between, and who is
# connected stays.
test_tls_keys_are_changed_without_downtime() {
    mkdir now
    local which
    for which in old new; do
        (umask 077 && "$ROADTRAIN" keys tls >$which.tls && "$ROADTRAIN" keys dhchap >$which.key)
    done
    cp old.tls now/host.tls && cp old.key now/host.key
    port=$(free_port) nqn=nqn.2026-11.test:e2e
    "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n "$nqn" --namespace mem:64MiB --tls required --require-auth \
        --tls-key "$hostnqn=$work/now/host.tls" --dhchap-key "$hostnqn=$work/now/host.key" --print-config >target.toml
    serve_configured
    # with TLS SECRET: has the old or the new key of each
    with() { as_host identify "$1.tls" --dhchap-secret "$2.key" -n "$nqn"; }
    reload() { : >target.log; kill -HUP "$target"; until_line target.log reloaded "$target"; }
    attach --tls --tls-key "$work/old.tls" --dhchap-secret "$work/old.key" -q "$hostnqn"
    with old old >identify.log
    refused "the target refuses this host's key" with new new
    (umask 077 && cat new.tls old.tls >now/host.tls && cat new.key old.key >now/host.key)
    reload
    for which in 'old old' 'new new' 'old new' 'new old'; do
        # shellcheck disable=SC2086
        with $which >identify.log
    done
    cp new.tls now/host.tls && cp new.key now/host.key
    reload
    with new new >identify.log
    refused "the target refuses this host's key" with old old
    refused 'the target refuses this host: authentication failed' with new old
    qemu-io -f raw -c 'write -P 7 1M 64k' -c 'read -P 7 1M 64k' "$uri" >io.log
    ! grep -q 'connecting again' attach.log || fail 'who was connected was not let alone'
}
