# shellcheck shell=bash
# shellcheck disable=SC2154  # work and pid are the harness's
# Paths that discovery controllers know: they follow what targets say while the attachment is used.

# shellcheck source=../lib/links.sh
. "$top/tests/lib/links.sh"

# serve_at PORT NAME SPEC..: a target that others may be beside, run as NAME; leaves its process in $target
serve_at() {
    local at=$1 name=$2
    nqn=${nqn:-nqn.2025-01.io.example:e2e}
    shift 2
    background "$name.log" env ROADTRAIN_RUNTIME_DIR="$work/$name" "$ROADTRAIN" serve -a 127.0.0.1 -s "$at" \
        -n "$nqn" "$@"
    target=$pid
    until_line "$name.log" '^ready' "$target"
}

# attach_discovered ADDRESS..: by what these discovery controllers know; leaves its process in $attached
attach_discovered() {
    local options=() at
    for at; do options+=(-a "$at"); done
    socket=$work/nbd.sock uri="nbd+unix:///?socket=$work/nbd.sock"
    background attach.log "$ROADTRAIN" attach -t tcp "${options[@]}" --nqn "$nqn" --discover --as "nbd:unix:$socket"
    attached=$pid
    until_line attach.log '^ready' "$attached"
}

# until_paths ADDRESS..: the attachment has these paths, all live
until_paths() {
    local wanted deadline=$((SECONDS + 20))
    wanted=$(printf '%s\n' "$@" | jq -R . | jq -sc sort)
    until "$ROADTRAIN" status --json >status.json &&
        jq -e --argjson wanted "$wanted" '([.[0].paths[].address] | sort) == $wanted and
            all(.[0].paths[]; .state == "live")' status.json >/dev/null; do
        [ $SECONDS -lt $deadline ] || fail "paths are $(jq -c '.[0].paths' status.json), not $wanted"
        sleep 0.05
    done
}

# verified_load_on_nbd: starts verified writes and reads, until verified_load_ends; leaves the process in $load
verified_load_on_nbd() {
    background fio.log fio --name=verify --ioengine=nbd --uri="$uri" --rw=randrw --bs=4k --size=32M --time_based \
        --runtime=600 --iodepth=16 --verify=crc32c --verify_fatal=1 --eta=never
    load=$pid
}

test_discovered_listeners_come_and_go_under_load() {
    local round
    serve --namespace mem:64MiB
    attach_discovered "127.0.0.1:$port"
    until_paths "127.0.0.1:$port"
    verified_load_on_nbd
    other_port=$(free_port)
    for round in 1 2 3; do
        ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl listener add -a 127.0.0.1 -s "$other_port" >>listen.log
        until_paths "127.0.0.1:$port" "127.0.0.1:$other_port"
        eventually 20 prints 'all(.[0].paths[]; .requests > 0)' "$ROADTRAIN" status --json
        alive "$load" || { cat fio.log; fail "fio has ended in round $round"; }
        ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl listener remove -a 127.0.0.1 -s "$other_port" >>listen.log
        until_paths "127.0.0.1:$port"
    done
    verified_load_ends
    "$ROADTRAIN" detach --all >>detach.log
}

# serve_one, serve_two: targets that have the same disk, each its own copy; each knows itself only
serve_one() {
    serve_at "$port" one --cntlid-range 1-1000 --namespace file:one.img,size=32MiB,uuid="$disk"
    one=$target
}
serve_two() {
    serve_at "$other_port" two --cntlid-range 1001-2000 --namespace file:two.img,size=32MiB,uuid="$disk"
    two=$target
}

# One of two targets departs and comes back, then the other one departs, under reads that are verified.
test_discovered_targets_come_and_go_under_load() {
    local one two disk=5a1c5b0e-3f0f-4d0b-9d2c-0123456789ab
    local verify=(--ioengine=nbd --bs=4k --size=32M --verify=pattern --verify_pattern=%o --verify_fatal=1
        --eta=never)
    port=$(free_port) other_port=$(free_port)
    serve_one
    attach_discovered "127.0.0.1:$port"
    fio --name=fill "${verify[@]}" --uri="$uri" --rw=write --iodepth=16 --do_verify=0 --end_fsync=1 --output=fill.log
    "$ROADTRAIN" detach --all >>detach.log
    cp one.img two.img
    serve_two
    attach_discovered "127.0.0.1:$port" "127.0.0.1:$other_port"
    until_paths "127.0.0.1:$port" "127.0.0.1:$other_port"
    # With a pattern that is checked, fio reads everything once and ends.
    while [ ! -e enough ]; do
        fio --name=verify "${verify[@]}" --uri="$uri" --rw=randread --iodepth=16 --output=fio.log || exit 1
    done &
    load=$!
    moves_data
    kill -TERM "$one"
    wait "$one" || fail "the target ended with $?"
    until_paths "127.0.0.1:$other_port"
    moves_data
    serve_one
    until_paths "127.0.0.1:$port" "127.0.0.1:$other_port"
    moves_data
    kill -TERM "$two"
    wait "$two" || fail "the target ended with $?"
    until_paths "127.0.0.1:$port"
    moves_data
    touch enough
    wait $load || fail "errors under load: $(cat fio.log)"
    "$ROADTRAIN" bench -a "127.0.0.1:$port" --discover -n "$nqn" --rw randread --ios 8000 --json >bench.json
    holds bench.json '.errors == 0'
    "$ROADTRAIN" detach --all >>detach.log
}

# One discovery address leads to two targets, by a referral; the second one comes later.
test_discovery_follows_referrals() {
    local one two disk=5a1c5b0e-3f0f-4d0b-9d2c-0123456789ab
    other_port=$(free_port)
    truncate -s 32M one.img two.img
    configure "file:one.img,uuid=$disk"
    printf '\n[[discovery.referral]]\naddress = "127.0.0.1"\nport = %s\n' "$other_port" >>target.toml
    serve_configured
    "$ROADTRAIN" discover -a "127.0.0.1" -s "$port" --json >discover.json
    holds discover.json "[.records[] | select(.subtype == \"referral\") | .trsvcid] == [\"$other_port\"]"
    attach_discovered "127.0.0.1:$port"
    until_paths "127.0.0.1:$port"
    serve_two
    until_paths "127.0.0.1:$port" "127.0.0.1:$other_port"
    kill -TERM "$two"
    until_paths "127.0.0.1:$port"
    "$ROADTRAIN" detach --all >>detach.log
}

test_discovery_that_finds_nothing_says_so() {
    local rc=0
    serve --namespace mem:64MiB
    "$ROADTRAIN" attach -a "127.0.0.1:$port" -n nqn.2025-01.io.example:other --discover --as "nbd:unix:$work/n.sock" \
        2>none.log || rc=$?
    [ $rc = 3 ] || fail "status $rc instead of 3"
    grep -q "no path to nqn.2025-01.io.example:other in the discovery log of 127.0.0.1:$port" none.log
    [ "$(wc -l <none.log)" = 1 ] || fail "more than a line: $(cat none.log)"
}

# Announced in one network namespace, found and used in another one, and taken back at the end.
test_discovery_by_mdns() {
    local why
    why=$(links_possible) || skip "$why"
    lab=d$BASHPID
    trap 'links_remove "$lab"' EXIT
    links_make "$lab" 1 1500
    # A new link is not up at once, and multicast DNS checks for links only every few seconds.
    until ip -n "rt-$lab-h" link show lan0 | grep -q 'state UP' && ip -n "rt-$lab-t" link show lan0 | grep -q 'state UP'; do
        sleep 0.05
    done
    nqn=nqn.2025-01.io.example:e2e
    background target.log ip netns exec "rt-$lab-t" "$ROADTRAIN" serve -a 10.77.0.2 -s 4420 -n "$nqn" \
        --namespace mem:16MiB --mdns
    target=$pid
    until_line target.log '^ready' "$target"
    eventually 30 prints 'length == 1 and .[0].addresses == ["10.77.0.2"] and .[0].trsvcid == "4420"' \
        in_host "$lab" "$ROADTRAIN" discover --mdns --json
    holds printed.json '.[0].transport == "tcp" and .[0].nqn == "nqn.2014-08.org.nvmexpress.discovery"'
    background attach.log ip netns exec "rt-$lab-h" "$ROADTRAIN" attach --mdns -n "$nqn" --as "nbd:unix:$work/n.sock"
    attached=$pid
    until_line attach.log '^ready' "$attached"
    "$ROADTRAIN" status --json >status.json
    holds status.json '[.[0].paths[].address] == ["10.77.0.2:4420"]'
    "$ROADTRAIN" detach --all >>detach.log
    kill -TERM "$target"
    ended "$target" 10
    in_host "$lab" "$ROADTRAIN" discover --mdns --json >none.json
    holds none.json 'length == 0'
}
