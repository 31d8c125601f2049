# shellcheck shell=bash
# Who has proved nothing takes nothing: attacks that are played against a running target, and what remains possible for
# those who have a key. Cases and their rules are in crates/target-proto/tests/target_proto/control/grant.rs.

hostnqn=nqn.2026-11.test:host

# attack WORD [ARGUMENTS]: plays it, to the end
attack() {
    python3 "$top/tests/e2e/security.py" "$1" "$port" "$nqn" "$hostnqn" "${@:2}" >attack.log 2>&1 ||
        fail "$(cat attack.log; tail -n 5 target.log)"
}

# attacked WORD [ARGUMENTS]: plays it, and holds what it has until `released`
attacked() {
    : >attack.log # an earlier one may have said that it is ready
    mkfifo "$1.in"
    python3 "$top/tests/e2e/security.py" "$1" "$port" "$nqn" "$hostnqn" "${@:2}" <"$1.in" >attack.log 2>&1 &
    attacker=$!
    exec 7>"$1.in"
    until_line attack.log '^ready' $attacker
}
released() {
    echo 'done' >&7
    exec 7>&-
    wait $attacker || fail "$(cat attack.log)"
}

host_key() { (umask 077 && "$ROADTRAIN" keys dhchap >host.key); }

# with_key COMMAND [OPTIONS]: as the host that has the key
with_key() {
    "$ROADTRAIN" "$1" -a 127.0.0.1 -s "$port" -n "$nqn" -q "$hostnqn" --dhchap-secret host.key "${@:2}"
}

# More than a host may have of connections and of controllers.
test_security_claims_leave_a_host_its_share() {
    host_key
    serve --namespace mem:16MiB --require-auth --dhchap-key "$hostnqn=host.key" --max-controllers-per-host 8 \
        --max-connections-per-host 8 --max-controllers 16
    attacked hold 40
    with_key identify >identify.log || fail "$(tail -n 5 target.log)"
    with_key bench --rw randrw --bs 4k --depth 8 --ios 800 --verify --json >bench.json
    holds bench.json '.errors == 0'
    released
}

# They make room, the oldest first.
test_security_claims_leave_connections() {
    host_key
    serve --namespace mem:16MiB --require-auth --dhchap-key "$hostnqn=host.key" --max-connections 24
    attacked hold 24
    with_key bench --rw randrw --bs 4k --depth 8 --ios 800 --verify --json >bench.json || fail "$(tail -n 5 target.log)"
    holds bench.json '.errors == 0'
    released
}

# 1,100 of them, as the defaults are.
thorough+=(security_claims_by_the_thousand)
test_security_claims_by_the_thousand() {
    host_key
    serve --namespace mem:16MiB --require-auth --dhchap-key "$hostnqn=host.key"
    attacked hold 1100
    with_key identify >identify.log || fail "$(tail -n 5 target.log)"
    released
}

test_security_claimed_queues_are_their_owners() {
    host_key
    serve --namespace mem:16MiB --require-auth --dhchap-key "$hostnqn=host.key"
    attacked queues
    attach -q "$hostnqn" --dhchap-secret host.key --lanes 4
    qemu-io -f raw -c 'write -P 7 1M 64k' -c 'read -P 7 1M 64k' "$uri" >io.log
    ! grep -q Sequence attach.log || fail "$(cat attach.log)"
    released
}

test_security_answers_before_the_proof_are_alike() {
    host_key
    serve --namespace mem:16MiB --require-auth --allow-host "$hostnqn" --dhchap-key "$hostnqn=host.key"
    attack answers
    grep -q 'will be refused after its authentication.*value="\\"nqn.2026-11.test:nowhere\\""' target.log ||
        fail "the reason is not in the log: $(tail -n 5 target.log)"
    with_key identify >identify.log
}

# A reload that requires a key, and one that requires TLS, which another host has a key for.
test_security_a_reload_ends_what_it_would_not_let_in() {
    local change before after
    host_key
    (umask 077 && "$ROADTRAIN" keys tls >host.tls)
    for change in key tls; do
        case $change in
            key) before=() after=(--require-auth --dhchap-key "$hostnqn=$work/host.key") ;;
            tls)
                before=(--tls-key "nqn.2026-11.test:other=$work/host.tls" --tls allowed)
                after=("${before[@]:0:2}" --tls required)
                ;;
        esac
        port=$(free_port) nqn=nqn.2026-11.test:e2e
        config() { "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n "$nqn" --namespace mem:16MiB "$@" --print-config >target.toml; }
        config "${before[@]}"
        serve_configured
        rm -f stays.in && attacked stays
        config "${after[@]}"
        kill -HUP "$target"
        until_line target.log 'ProofRequired' "$target"
        released
        kill "$target"
        ended "$target" 20
    done
}

# Names of hosts that were never admitted are not kept, nor are unread replies.
test_security_metrics_stay_small() {
    local metrics before
    metrics=$(free_port)
    serve --namespace mem:16MiB --allow-host "$hostnqn" --metrics "127.0.0.1:$metrics"
    before=$(curl -sS "http://127.0.0.1:$metrics/metrics" | wc -c)
    attack names 300
    curl -sS "http://127.0.0.1:$metrics/metrics" >metrics.txt
    grep -q 'host_refusals_total.*reason="HOSTNQN".* 302$' metrics.txt || fail "$(grep refusals metrics.txt)"
    ! grep -q made-up metrics.txt || fail 'names that anybody can make up'
    [ "$(wc -c <metrics.txt)" -lt $((before + 4096)) ] || fail "$before bytes, then $(wc -c <metrics.txt)"
    ! grep -q $'\e' target.log || fail 'a name of a host moves the cursor'
    port=$metrics attack unread
    [ "$(curl -sS -o /dev/null -w '%{http_code}' -H 'Host: evil.example' "http://127.0.0.1:$metrics/metrics")" = 421 ]
    [ "$(curl -sS -o /dev/null -w '%{http_code}' -H 'Origin: http://evil.example' "http://127.0.0.1:$metrics/metrics")" = 403 ]
}

test_security_new_files_are_for_their_owner() {
    (umask 0 && serve --namespace "file:$work/disk.img,size=16MiB" --rpc "$work/rpc.sock")
    [ "$(stat -c %a disk.img)" = 600 ] || fail "a disk with mode $(stat -c %a disk.img)"
    [ "$(stat -c %a rpc.sock)" = 600 ] || fail "a socket with mode $(stat -c %a rpc.sock)"
}

# What another user has written names no process that is ended.
test_security_entries_of_others_end_nothing() {
    local folder=$work/run/nbd0 victim started
    [ "$(id -u)" = 0 ] || skip 'files of another user need root'
    setpriv --reuid 65534 --clear-groups sleep 600 &
    victim=$!
    eventually 10 grep -q sleep "/proc/$victim/cmdline"
    started=$(awk '{ print $22 }' "/proc/$victim/stat")
    mkdir -p "$folder"
    cat >"$folder/entry.json" <<JSON
{"id": "nbd0", "as": "nbd:unix:$work/s", "address": "x", "nqn": "nqn.x:y", "pid": $victim, "started": $started,
 "phase": "ready", "devices": [], "leftovers": [], "log": null}
JSON
    chmod 700 "$work/run"
    chown -R 65534 "$work/run"
    ! ROADTRAIN_RUNTIME_DIR=$work/run "$ROADTRAIN" detach --all >detach.out 2>&1 || fail "$(cat detach.out)"
    grep -q 'belongs to user 65534' detach.out || fail "$(cat detach.out)"
    # In a folder of one's own it still is another one's process.
    chown -R 0 "$work/run"
    ROADTRAIN_RUNTIME_DIR=$work/run "$ROADTRAIN" detach --all >detach.out 2>&1 || fail "$(cat detach.out)"
    grep -q 'was gone' detach.out || fail "$(cat detach.out)"
    kill -0 $victim || fail "another user's process was ended"
    kill $victim
}
