# shellcheck shell=bash
# Storage straight on Ethernet, between ends that do not trust the segment.

readonly ether_hostnqn=nqn.2026-11.test:host

# ether_keys: a lab with two links, and keys of both sides
ether_keys() {
    ether_lab 2 9000
    (umask 077; for key in host target other; do "$ROADTRAIN" keys dhchap >$key.key; done)
    known=(-q "$ether_hostnqn" --dhchap-secret host.key)
}

# serve_keys [OPTIONS]: a target that knows the host
serve_keys() {
    serve_ether --namespace mem:64MiB --require-auth --dhchap-key "$ether_hostnqn=host.key" \
        --dhchap-ctrl-key "$ether_hostnqn=target.key" "$@"
}

# refused_ether TEXT [OPTIONS]: the host is refused, or refuses
refused_ether() {
    refused "$1" in_host "$lab" "$ROADTRAIN" bench -t ether -a "$links" -n "$nqn" --rw read --ios 8000 "${@:2}"
}

test_ether_authenticated() {
    ether_keys
    serve_keys
    bench_ether "${known[@]}" --rw randrw --bs 4k --depth 16 --lanes 2 --ios 8000
    bench_ether "${known[@]}" --dhchap-ctrl-secret target.key --rw randrw --bs 64k --depth 4 --ios 800
    refused_ether 'target refuses this host: authentication failed' -q "$ether_hostnqn" --dhchap-secret other.key
    refused_ether 'this host refuses the target' "${known[@]}" --dhchap-ctrl-secret other.key
}

# Frames are sealed over two links, with one lane or two, whatever the MTU; and the log and status say so.
test_ether_sealed() {
    ether_keys
    serve_keys --seal required --cores 0,1
    bench_ether "${known[@]}" --rw randrw --bs 4k --depth 64 --lanes 2 --ios 8000
    bench_ether "${known[@]}" --seal required --rw randrw --bs 128k --depth 16 --ios 800
    [ "$(grep -c 'authenticated; frames are sealed' target.log)" = 5 ] || { cat target.log; fail 'not sealed'; }
    export ROADTRAIN_RUNTIME_DIR=$work/run
    attach_ether "nbd:unix:$work/nbd.sock" "${known[@]}"
    until_line attach.log '^ready' "$attached"
    # Links are written from time to time.
    eventually 20 prints '[.. | .links? // empty | .[]] | length == 2 and all(.sealed)' "$ROADTRAIN" status --json
    refused_ether 'one side wants a secure channel.*--seal' "${known[@]}" --seal off
    refused_ether 'the target refuses this host' -q nqn.2026-11.test:stranger --dhchap-secret host.key
}

# Without authentication there are no keys: who insists is refused, at either end.
test_ether_seal_required() {
    ether_keys
    serve_ether --namespace mem:64MiB --dhchap-key "$ether_hostnqn=host.key" --seal off
    refused_ether 'one side wants a secure channel.*--seal' "${known[@]}"
    bench_ether "${known[@]}" --seal off --rw randrw --bs 4k --depth 4 --ios 8000
    refused_ether 'this host refuses the target: --seal required' -q nqn.2026-11.test:stranger \
        --dhchap-secret other.key --seal required
    local rc=0
    "$ROADTRAIN" serve -t ether -a lan0 -n "$nqn" --namespace mem:4k --seal required 2>serve.log || rc=$?
    [ "$rc" = 2 ] && grep -q 'without a key' serve.log || { cat serve.log; fail "status $rc"; }
    "$ROADTRAIN" bench -t ether -a lan0 -n "$nqn" --seal required 2>host.log && fail 'no key is needed'
    grep -q 'needs --dhchap-secret' host.log || { cat host.log; fail 'not said'; }
}

# What goes over a link can be read without sealing, and cannot with it.
test_ether_sealed_is_not_readable() {
    command -v python3 >/dev/null || skip 'no python3'
    ether_keys
    yes 'this is to stay a secret' | head -c 4194304 >disk.img || true
    serve_ether --namespace "file:$work/disk.img" --dhchap-key "$ether_hostnqn=host.key"
    local seal sniffer
    for seal in off allowed; do
        "${away[@]}" timeout 120 python3 -c '
import select, socket
taps = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in "01"]
for n, tap in enumerate(taps):
    tap.bind(("lan%d" % n, 3)); tap.setsockopt(1, 33, 1 << 26)
print("listens", flush=True)
frames = readable = 0
while readable == 0 and frames < 2000:
    for tap in select.select(taps, [], [])[0]:
        frame = tap.recv(70000)
        if frame[12:14] == b"\x88\xb5" and len(frame) > 4000:
            frames += 1; readable += b"to stay a secret" in frame
print("read" if readable else "not read")' >"seen.$seal" &
        sniffer=$!
        until_line "seen.$seal" listens "$sniffer"
        background bench.log "${host[@]}" "$ROADTRAIN" bench -t ether -a "$links" -n "$nqn" "${known[@]}" --seal $seal \
            --rw read --bs 4k --depth 8 --seconds 600
        wait "$sniffer" || { cat bench.log; fail "the sniffer has ended: $(cat seen.$seal)"; }
        kill -INT "$pid"
        wait "$pid" || { cat bench.log; fail 'bench saw errors'; }
    done
    grep -qx read seen.off || fail 'nothing was read in the clear: this shows nothing'
    grep -qx 'not read' seen.allowed || fail 'sealed frames can be read'
}

# An attacker who sees all frames and knows the format does no harm: data is as it was written, and no lane ends.
test_ether_sealed_under_attack() {
    ether_keys
    serve_keys -v
    background bench.log "${host[@]}" "$ROADTRAIN" bench -t ether -a "$links" -n "$nqn" "${known[@]}" --rw randrw \
        --bs 4k --depth 16 --lanes 2 --seconds 600 --size 8MiB --verify --json
    local load=$pid attack
    moves_data
    background attack-1.log "${away[@]}" "$EXERCISE" frames lan0 --kinds altered,replayed,cut --seconds 1 --frames 20000
    attack=$pid
    background attack-2.log "${host[@]}" "$EXERCISE" frames lan1 --kinds altered,replayed,changed,moved --seconds 1 --frames 20000
    wait "$attack" || fail 'the target has sent nothing'
    wait "$pid" || fail 'the host has sent nothing'
    moves_data
    moves_data
    ether_bench_ends
    ! grep -qE 'connecting again|queue closed' bench.log || { cat bench.log; fail 'a lane has ended'; }
    grep -q 'has not sealed were dropped' target.log || { cat attack-*.log target.log; fail 'nobody has noticed'; }
}
