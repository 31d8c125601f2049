# shellcheck shell=bash
# Multipath TCP: one lane over four links that are cut, TLS over it, and fallback to TCP at either end.

# shellcheck source=../lib/links.sh
. "$top/tests/lib/links.sh"

# mptcp_links COUNT [RATE]: links whose target announces its addresses for subflows; commands at the ends begin with
# "${host[@]}" and "${away[@]}"
mptcp_links() {
    local why link side
    why=$(links_possible) || skip "$why"
    lab="s$BASHPID"
    trap 'links_remove "$lab"' EXIT
    links_make "$lab" "$1" 1500 "${2-}"
    host=(ip netns exec "rt-$lab-h") away=(ip netns exec "rt-$lab-t")
    [ "$("${host[@]}" sysctl -n net.mptcp.enabled 2>/dev/null)" = 1 ] || skip 'this kernel has no MPTCP'
    for side in h t; do
        ip netns exec "rt-$lab-$side" ip mptcp limits set subflows 8 add_addr_accepted 8 ||
            skip 'this ip does not know mptcp'
    done
    for ((link = 1; link < $1; link++)); do
        "${away[@]}" ip mptcp endpoint add "10.77.$link.2" dev "lan$link" signal
    done
    nqn=nqn.2026-11.test:e2e hostnqn=nqn.2026-11.test:host
}

# serve_far [OPTIONS]: a target of $blocks (memory unless set) at $addresses (all unless set); leaves its process in $target
serve_far() {
    background target.log "${away[@]}" env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve -a "${addresses:-0.0.0.0}" \
        -n "$nqn" --namespace "${blocks:-mem:64MiB}" "$@"
    target=$pid
    until_line target.log '^ready' "$target"
}

far_status() { env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --json; }

# far_bench LOG [OPTIONS]: verified load of one lane; leaves its process in $load
far_bench() {
    background "$1" "${host[@]}" "$ROADTRAIN" bench -a 10.77.0.2 -n "$nqn" --rw randrw --bs 64k --depth 32 --lanes 1 \
        --size 16MiB --verify --json "${@:2}"
    load=$pid
}

# far_bench_ended LOG: it has seen no error; its report is left in bench.json
far_bench_ended() {
    wait "$load" || { cat "$1"; fail 'bench saw errors'; }
    sed -n '/^{/,$p' "$1" >bench.json
    holds bench.json '.errors == 0 and .blocks_checked > 0'
}

# carries_by LINK: whether another MiB of the lane leaves the target by this link, soon
carries_by() {
    local sent="[.[0].lanes[] | select(.qid == 1) | .subflows[] | select(.local == \"10.77.$1.2:4420\") | .sent_bytes] | add"
    eventually 60 prints "$sent" far_status
    eventually 120 prints "($sent) > $(jq "($sent) + 1048576" printed.json)" far_status
}

thorough+=(mptcp_carries_one_lane_over_links_that_are_cut)
test_mptcp_carries_one_lane_over_links_that_are_cut() {
    local link cut
    mptcp_links 4 100mbit  # slow, so that each is needed
    serve_far --mptcp
    far_bench bench.log --mptcp --seconds 600
    eventually 30 prints '[.[0].lanes[] | select(.qid == 1) | .subflows[].local] | sort ==
        ["10.77.0.2:4420", "10.77.1.2:4420", "10.77.2.2:4420", "10.77.3.2:4420"]' far_status
    for link in 0 1 2 3; do carries_by $link; done
    # The first subflow is among those that are cut at first, and alone at last.
    for cut in '0 1 2' '1 2 3'; do
        for link in $cut; do links_cut "$lab" "$link"; done
        ROADTRAIN_RUNTIME_DIR=$work/served moves_data
        sleep 2
        ROADTRAIN_RUNTIME_DIR=$work/served moves_data
        for link in $cut; do links_mend "$lab" "$link"; done
        # TCP tries a link again about as long after its return as it was away.
        for link in 0 1 2 3; do carries_by $link; done
    done
    kill -INT "$load"
    far_bench_ended bench.log
    holds bench.json '.reconnects == 0'
}

test_mptcp_attachment_shows_its_subflows() {
    local addresses=10.77.0.2,10.77.1.2
    mptcp_links 2
    serve_far --mptcp
    background attach.log "${host[@]}" "$ROADTRAIN" attach --mptcp -a 10.77.0.2 -n "$nqn" --as "nbd:unix:$work/nbd.sock"
    until_line attach.log '^ready' "$pid"
    eventually 30 prints '.[0].lanes[0].subflows | map([.local, .peer] | map(sub(":[0-9]+$"; ""))) | sort ==
        [["10.77.0.1", "10.77.0.2"], ["10.77.1.1", "10.77.1.2"]]' "$ROADTRAIN" status --json
    "$ROADTRAIN" status >status.txt
    grep -qE '^  lane 0 +10\.77\.1\.1:[0-9]+ +10\.77\.1\.2:4420 ' status.txt || fail "$(cat status.txt)"
    ROADTRAIN_RUNTIME_DIR=$work/served "$ROADTRAIN" status >status.txt
    grep -qE '^  controller 1 queue 1 +10\.77\.1\.2:4420 +10\.77\.1\.1:' status.txt || fail "$(cat status.txt)"
    fio --name=verify --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd.sock" --rw=randwrite --bs=4k --size=16M \
        --iodepth=16 --verify=crc32c --verify_fatal=1 --end_fsync=1 --eta=never --output=fio.log
    "$ROADTRAIN" detach --all >detach.log
}

test_mptcp_under_tls_and_authentication() {
    mptcp_links 2
    (umask 077 && "$ROADTRAIN" keys tls >host.tls && "$ROADTRAIN" keys dhchap >host.key)
    serve_far --mptcp --tls required --tls-key "$hostnqn=host.tls" --require-auth --dhchap-key "$hostnqn=host.key"
    far_bench bench.log --mptcp --seconds 600 -q "$hostnqn" --tls --tls-key host.tls --dhchap-secret host.key
    eventually 30 prints '[.[0].lanes[] | select(.qid == 1) | .subflows | length] == [2]' far_status
    holds printed.json '[.[0].subsystems[].controllers[] | .transport, .auth.hash] == ["tls", "sha256"]'
    carries_by 1
    links_cut "$lab" 0
    ROADTRAIN_RUNTIME_DIR=$work/served moves_data
    links_mend "$lab" 0
    kill -INT "$load"
    far_bench_ended bench.log
}

# falls_back: one lane without subflows, whatever the ends want
falls_back() {
    far_bench bench.log --seconds 600 "$@"
    eventually 30 prints '[.[0].lanes[] | select(.qid == 1) | .subflows] == [[]]' far_status
    kill -INT "$load"
    far_bench_ended bench.log
}

test_mptcp_falls_back_to_tcp() {
    mptcp_links 2
    serve_far --mptcp
    falls_back
    ! grep -q MPTCP bench.log target.log || fail 'nothing is to be said'
    end_all "$target"
    serve_far
    falls_back --mptcp -v
    grep -q -- '--mptcp: 10.77.0.2:4420 accepts TCP only' bench.log || fail "$(cat bench.log)"
    end_all "$target"
    "${away[@]}" sysctl -qw net.mptcp.enabled=0
    serve_far --mptcp
    grep -q -- '--mptcp: this kernel offers no MPTCP .* set net.mptcp.enabled=1' target.log || fail "$(cat target.log)"
    falls_back --mptcp
    end_all "$target"
    "${away[@]}" sysctl -qw net.mptcp.enabled=1
    "${host[@]}" sysctl -qw net.mptcp.enabled=0
    serve_far --mptcp
    falls_back --mptcp
    [ "$(grep -c 'this kernel offers no MPTCP' bench.log)" = 1 ] || fail "$(cat bench.log)"
}

test_mptcp_listeners_are_taken_over() {
    local old blocks=file:$work/disk.img,size=64MiB
    mptcp_links 2
    serve_far --mptcp
    far_bench bench.log --mptcp --seconds 600
    eventually 30 prints '[.[0].lanes[] | select(.qid == 1) | .subflows | length] == [2]' far_status
    old=$target
    background next.log "${away[@]}" env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve -a 0.0.0.0 -n "$nqn" \
        --namespace "$blocks" --takeover
    target=$pid
    until_line next.log '^ready' "$target"
    ended "$old" 60
    grep -q '0.0.0.0:4420 takes MPTCP, as the process before has opened it' next.log || fail "$(cat next.log)"
    eventually 30 prints '[.[0].lanes[] | select(.qid == 1) | .subflows | length] == [2]' far_status
    kill -INT "$load"
    far_bench_ended bench.log
}
