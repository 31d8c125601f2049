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

test_tls_data_in_both_suites() {
    tls_keys
    local key
    for key in host wide; do
        serve --namespace mem:64MiB --namespace "file:$work/$key.img,size=64MiB,lba=4096" --tls required \
            --tls-key "$hostnqn=$key.tls"
        as_host discover $key.tls --json >discover.json
        holds discover.json '[.. | .tls? // empty] | length == 2 and all(. == "required")'
        as_host identify $key.tls -n "$nqn" >identify.log
        as_host list $key.tls --json >list.json
        holds list.json '[.. | .nsid? // empty] == [1, 2]'
        for nsid in 1 2; do
            as_host bench $key.tls -n "$nqn" --nsid $nsid --rw randrw --bs 4k --depth 32 --lanes 2 --seconds 1 \
                --verify --json >bench.json
            holds bench.json '.errors == 0 and .blocks_checked > 0'
            as_host bench $key.tls -n "$nqn" --nsid $nsid --rw randrw --bs 128k --depth 8 --seconds 1 --verify \
                --json >bench.json
            holds bench.json '.errors == 0 and .blocks_checked > 0'
        done
        kill "$target" && ended "$target" 10
        ! grep -q NVMeTLSkey target.log || fail 'a key is in the log'
    done
}

test_tls_bench_makes_its_own_key() {
    "$ROADTRAIN" bench --tls --rw randrw --bs 4k --depth 32 --seconds 1 --verify --json >bench.json
    holds bench.json '.errors == 0 and .blocks_checked > 0'
    ! ls /tmp/roadtrain-bench-*.tls 2>/dev/null || fail 'its key is left'
}

test_tls_refusals() {
    tls_keys
    serve --namespace mem:64MiB --tls required --tls-key "$hostnqn=host.tls"
    refused "the target refuses this host's key" as_host identify wrong.tls -n "$nqn"
    refused "the target refuses this host's key" as_host identify wide.tls -n "$nqn"
    refused "the target refuses this host's key" "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" --tls \
        --tls-key host.tls -q nqn.2026-11.test:other -n "$nqn"
    grep -q 'this target refuses the host: no key for the identity NVMe1R01 nqn.2026-11.test:other' target.log
    refused 127.0.0.1 "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -q "$hostnqn" -n "$nqn"
    grep -q 'does not begin with TLS' target.log
    kill "$target" && ended "$target" 10
    serve --namespace mem:64MiB
    refused 'TLS handshake' as_host identify host.tls -n "$nqn"
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
    [ "$rc" = 2 ] && grep -q 'needs --tls-key' error.log
    chmod 644 host.tls
    "$ROADTRAIN" identify -a 127.0.0.1 -s 1 -n nqn.x:y --tls --tls-key host.tls 2>error.log || true
    grep -q 'chmod 600 host.tls' error.log
    "$ROADTRAIN" serve -a 127.0.0.1 -s 0 -n nqn.x:y --namespace mem:1MiB --tls allowed \
        --tls-key "$hostnqn=host.tls" --print-config >tls.toml 2>/dev/null
    grep -q 'mode = "allowed"' tls.toml && ! grep -q NVMeTLSkey tls.toml
}

# A host's key changes while it is connected: it stays, and comes again with the new one only.
test_tls_keys_are_reloaded() {
    tls_keys
    port=$(free_port) nqn=nqn.2026-11.test:e2e
    "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n "$nqn" --namespace mem:64MiB --tls required \
        --tls-key "$hostnqn=$work/host.tls" --print-config >target.toml
    serve_configured
    attach --tls --tls-key "$work/host.tls" -q "$hostnqn"
    cp wrong.tls new.tls && mv new.tls host.tls.new
    cp host.tls old.tls && mv host.tls.new host.tls
    kill -HUP "$target"
    until_line target.log reloaded "$target"
    as_host identify host.tls -n "$nqn" >identify.log
    refused "the target refuses this host's key" as_host identify old.tls -n "$nqn"
    nbdinfo "$uri" >/dev/null || fail 'who was connected is not served any more'
}

# Another TLS: its handshake ends, with the one cipher suite that the key is for.
test_tls_openssl_handshake() {
    local line identity psk
    tls_keys
    serve --namespace mem:64MiB --tls required --tls-key "$hostnqn=host.tls"
    "$ROADTRAIN" keys show host.tls --hostnqn "$hostnqn" --subnqn "$nqn" --reveal >shown
    { read -r identity && read -r psk; } <shown
    for line in "$psk:ok" "$(printf '%064d' 7):refused"; do
        { sleep 1; } | timeout 20 openssl s_client -connect "127.0.0.1:$port" -tls1_3 -psk "${line%%:*}" \
            -psk_identity "$identity" -ciphersuites TLS_AES_128_GCM_SHA256 >openssl.log 2>&1 || true
        case $line in
        *:ok) grep -q 'Reused, TLSv1.3, Cipher is TLS_AES_128_GCM_SHA256' openssl.log || fail "$(tail -20 openssl.log)" ;;
        *) grep -q 'alert number 51' openssl.log || fail "$(tail -20 openssl.log)" ;;
        esac
    done
}
