# shellcheck shell=bash
# Paths of both transports, and several straight on Ethernet, to one subsystem.

# shellcheck source=../lib/links.sh
. "$top/tests/lib/links.sh"

# mixed_lab: two links of a lab of its own; $host and $away run a program at one end
mixed_lab() {
    local why
    why=$(links_possible) || skip "$why"
    lab="m$BASHPID"
    host=(ip netns exec "rt-$lab-h") away=(ip netns exec "rt-$lab-t")
    trap 'links_remove "$lab"' EXIT
    links_make "$lab" 2 1500
    nqn=nqn.2026-11.test:mixed
}

# serve_mixed ADDRESS..: a target at all of them
serve_mixed() {
    local places=() place
    for place in "$@"; do places+=(-a "$place"); done
    background "$work/target.log" env ROADTRAIN_RUNTIME_DIR="$work/served" "${away[@]}" "$ROADTRAIN" serve \
        "${places[@]}" -n "$nqn" --namespace "file:$work/disk.img,size=64MiB"
    target=$pid
    until_line "$work/target.log" '^ready' "$target"
}

# states_are STATE STATE: of the attachment's paths, within 20 s
states_are() {
    local n
    for ((n = 0; n < 100; n++)); do
        "$ROADTRAIN" status --json >status.json || true
        ! jq -e "[.[0].paths[].state] == [\"$1\", \"$2\"]" status.json >/dev/null || return 0
        sleep 0.2
    done
    cat status.json attach.log
    fail "paths are not $*"
}

# carries ADDRESS ADDRESS NAME NAME: a verified load goes on while one link after the other is cut, and both have carried
# some; status names them so
carries() {
    mixed_lab
    serve_mixed "$1" "$2"
    background "$work/attach.log" "${host[@]}" "$ROADTRAIN" attach -a "$1" -a "$2" -n "$nqn" \
        --as "nbd:unix:$work/nbd.sock" -k 2 --reconnect-delay 1 --path-policy round-robin
    until_line "$work/attach.log" '^ready' "$pid"
    states_are live live
    holds status.json "[.[0].paths[].address] == [\"$3\", \"$4\"]"
    background fio.log fio --name=mixed --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd.sock" --rw=randwrite \
        --bs=4k --size=4M --iodepth=16 --verify=crc32c --verify_fatal=1 --loops=1000000 --trigger-file=enough \
        --eta=never
    local load=$pid link
    eventually 20 prints 'all(.[0].paths[]; .iops > 0)' "$ROADTRAIN" status --json
    for link in 0 1; do
        links_cut "$lab" $link
        [ $link = 0 ] && states_are connecting live || states_are live connecting
        eventually 20 prints_anyway ".[0].paths[$((1 - link))].iops > 0" "$ROADTRAIN" status --json
        links_mend "$lab" $link
        states_are live live
    done
    alive "$load" || { cat fio.log; fail 'the load has ended'; }
    : >enough
    wait "$load" || { cat fio.log; fail 'the load saw errors'; }
    ! grep -E 'err= *[1-9]|verify:' fio.log || fail 'the load saw errors'
    "$ROADTRAIN" status --json >status.json
    holds status.json '.[0].errors == 0'
    "$ROADTRAIN" detach --all >detach.log
}

test_mixed_paths_of_both_transports() {
    carries 10.77.0.2 ether:lan1 10.77.0.2:4420 ether:lan1
}

thorough+=(mixed_paths_straight_on_ethernet)
test_mixed_paths_straight_on_ethernet() {
    carries ether:lan0 ether:lan1 ether:lan0 ether:lan1
}

test_mixed_paths_by_other_commands() {
    mixed_lab
    serve_mixed 10.77.0.2 ether:lan1
    "${host[@]}" "$ROADTRAIN" bench -a ether:lan1 -a 10.77.0.2:4420 -n "$nqn" --rw randrw --bs 4k --depth 32 \
        --ios 8000 --size 8MiB --lanes 2 --verify --json >bench.json
    holds bench.json '.errors == 0 and .iops > 0'
    "${host[@]}" "$ROADTRAIN" list -a 10.77.0.2 -a ether:lan1 -n "$nqn" --json >list.json
    holds list.json 'length == 2'
    local rc=0
    "${host[@]}" "$ROADTRAIN" bench -a ether:lan0,lan1 -a ether:lan1 -n "$nqn" --seconds 1 2>refused.log || rc=$?
    [ $rc = 2 ] && grep -q 'ether:lan1 is given twice' refused.log || { cat refused.log; fail "status $rc"; }
}
