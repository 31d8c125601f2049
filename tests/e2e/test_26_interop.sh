# shellcheck shell=bash
# shellcheck disable=SC2154  # top, work and pid are the harness's
# What other hosts and targets do, and ours do not.

# SPDK ends its Asynchronous Event Requests by itself, and uses their identifiers for the shutdown. Other hosts make a
# HOSTID for each connection.
test_a_host_detaches_as_spdk_does() {
    serve --namespace mem:64MiB
    python3 "$top/tests/e2e/foreign_host.py" 127.0.0.1 "$port" "$nqn" nqn.2026-11.test:foreign >host.log
    grep -qx 'shut down' host.log
    grep -q 'names another HOSTID' target.log
    ! grep -qE 'identifier|protocol' target.log || fail "$(grep -E 'identifier|protocol' target.log)"
    ! grep -q 'not shut down' target.log
}

# fails_saying TEXT COMMAND...: fails and says that
fails_saying() {
    ! "${@:2}" >failed.log 2>&1 || fail "${*:2}: has not failed"
    grep -qF "$1" failed.log || fail "$(cat failed.log)"
}

# shellcheck source=../lib/links.sh
. "$top/tests/lib/links.sh"

# Addresses that count on one link: a log has them without an interface, which is that of the discovery controller.
test_discovery_of_link_local_addresses() {
    local why side
    why=$(links_possible) || skip "$why"
    lab=l$BASHPID
    trap 'links_remove "$lab"' EXIT
    links_make "$lab" 1 1500
    for side in h t; do
        ip netns exec "rt-$lab-$side" sysctl -qw net.ipv6.conf.lan0.disable_ipv6=0 || skip 'no IPv6 here'
    done
    in_host "$lab" ip -6 addr add fe80::77:1/64 dev lan0 nodad
    in_target "$lab" ip -6 addr add fe80::77:2/64 dev lan0 nodad
    nqn=nqn.2026-11.test:e2e
    background target.log ip netns exec "rt-$lab-t" "$ROADTRAIN" serve -a fe80:0:0:0::77:2%lan0 -s 4420 -n "$nqn" \
        --namespace mem:16MiB --mdns --rpc "$work/rpc.sock" --state "$work/state.toml"
    target=$pid
    until_line target.log '^ready' "$target"
    fails_saying 'needs the name of its interface' "$ROADTRAIN" ctl --rpc "$work/rpc.sock" rpc nvmf_subsystem_add_listener \
        '{"nqn": "nqn.2026-11.test:other", "listen_address": {"trtype": "tcp", "traddr": "fe80::77:2", "trsvcid": "4421"}}'
    "$ROADTRAIN" ctl --rpc "$work/rpc.sock" rpc nvmf_create_subsystem '{"nqn": "nqn.2026-11.test:other", "allow_any_host": true}'
    "$ROADTRAIN" ctl --rpc "$work/rpc.sock" rpc nvmf_subsystem_add_listener \
        '{"nqn": "nqn.2026-11.test:other", "listen_address": {"trtype": "tcp", "traddr": "fe80::77:2%lan0", "trsvcid": "4421"}}'
    in_host "$lab" "$ROADTRAIN" discover -a 'fe80::77:2%lan0' -s 4421 --json >discover.json
    holds discover.json '[.. | strings] | index("nqn.2026-11.test:other") != null'
    fails_saying 'needs the name of its interface' in_host "$lab" "$ROADTRAIN" identify -a fe80::77:2 -n "$nqn"
    background attach.log ip netns exec "rt-$lab-h" "$ROADTRAIN" attach -a 'fe80::77:2%lan0' --discover -n "$nqn" \
        --as "nbd:unix:$work/n.sock"
    attached=$pid
    until_line attach.log '^ready' "$attached"
    "$ROADTRAIN" status --json >status.json
    holds status.json '[.[0].paths[].address] | length == 1 and (.[0] | startswith("[fe80::77:2%") and endswith("]:4420"))'
    eventually 30 prints '.[0].addresses == ["fe80::77:2%lan0"]' in_host "$lab" "$ROADTRAIN" discover --mdns --json
}

# One address has several spellings, and is one path.
test_spellings_of_one_address_are_one_path() {
    target_address=::ffff:127.0.0.1 serve --namespace mem:16MiB
    grep -q "127.0.0.1:$port" target.log
    local other
    for other in ::ffff:127.0.0.1 "[::ffff:7f00:1]:$port" localhost; do
        fails_saying 'is given twice' "$ROADTRAIN" attach -a 127.0.0.1 -a "$other" -s "$port" -n "$nqn" --as "nbd:unix:$work/n.sock"
    done
}

# A port that the system has chosen is one that subsystems may name.
test_a_listener_at_a_port_that_the_system_chose() {
    background target.log "$ROADTRAIN" serve -a 127.0.0.1 -s 0 -n nqn.2026-11.test:e2e --namespace mem:16MiB \
        --rpc "$work/rpc.sock" --state "$work/state.toml"
    target=$pid
    until_line target.log '^ready' "$target"
    port=$(grep -o '127.0.0.1:[0-9]*' target.log | head -n 1 | cut -d: -f2)
    local other=nqn.2026-11.test:other
    "$ROADTRAIN" ctl --rpc "$work/rpc.sock" rpc nvmf_create_subsystem "{\"nqn\": \"$other\", \"allow_any_host\": true}"
    fails_saying 'does not require TLS there' "$ROADTRAIN" ctl --rpc "$work/rpc.sock" rpc nvmf_subsystem_add_listener \
        "{\"nqn\": \"$other\", \"listen_address\": {\"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$port\"}, \"secure_channel\": true}"
    "$ROADTRAIN" ctl --rpc "$work/rpc.sock" rpc nvmf_subsystem_add_listener \
        "{\"nqn\": \"$other\", \"listen_address\": {\"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$port\"}}"
    "$ROADTRAIN" discover -a 127.0.0.1 -s "$port" --json >discover.json
    holds discover.json "[.. | strings] | index(\"$other\") != null"
}

# Who leaves an NBD device with requests under way is seen in the log: they may still be executed.
test_an_nbd_client_that_leaves_with_requests_is_logged() {
    serve --namespace mem:16MiB
    attach
    stopped "$target"
    background io.log qemu-io -f raw -c 'write 0 64k' "$uri"
    local io=$pid
    eventually 20 prints_anyway '.[0].in_flight > 0' "$ROADTRAIN" status --json
    kill -KILL "$io"
    eventually 20 grep -q 'an NBD client has left before its requests ended' attach.log
    kill -CONT "$target"
}

# A target that says success and has not sent the data: the host tries again, and says what it was.
test_a_success_without_its_data_is_logged_as_such() {
    serve --namespace mem:16MiB
    local proxied
    proxied=$(free_port)
    background proxy.log python3 "$top/tests/e2e/short_read.py" "$proxied" "$port"
    until_line proxy.log '^ready' "$pid"
    port=$proxied
    attach
    qemu-io -f raw -c 'write -P 7 0 64k' -c 'read -P 7 0 64k' "$uri" >io.log
    ! grep -qi 'failed' io.log || fail "$(cat io.log)"
    grep -q 'success, but not all data has moved: trying again' attach.log
}
