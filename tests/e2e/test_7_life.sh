# shellcheck shell=bash
# The life of attachments: in the background, listed, queried, detached, killed, and nothing is left.

# attach_as FRONT [OPTIONS]: prints what `attach` prints
attach_as() {
    "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --as "$@"
}

# fails STATUS COMMAND...: the command ends with that status; what it says is in said.log
fails() {
    local rc=0
    "${@:2}" >said.log 2>&1 || rc=$?
    [ $rc = "$1" ] || { cat said.log; fail "status $rc instead of $1: ${*:2}"; }
}

# pid_of ID
pid_of() { "$ROADTRAIN" list --json | jq -r --arg id "$1" '.[] | select(.id == $id) | .pid'; }

# listed FILTER: what is attached here is so
listed() {
    "$ROADTRAIN" list --json >list.json
    holds list.json "$1"
}

# is_listed FILTER: whether what is attached here is so
is_listed() { prints "$1" "$ROADTRAIN" list --json; }

# nothing_left: no entry, no socket
nothing_left() {
    listed 'length == 0'
    [ -z "$(ls run)" ] || fail "in the registry: $(ls run)"
    local sockets
    sockets=$(find . -path ./served -prune -o -type s -print)  # but for the target's own
    [ -z "$sockets" ] || fail "sockets: $sockets"
}

test_life_of_two() {
    local line uri second
    serve --namespace mem:64MiB --namespace mem:32MiB,lba=4096
    line=$(attach_as "nbd:unix:$work/a.sock" --background)
    [[ $line =~ ^ready\ .*a\.sock\ $nqn\ nsid\ 1\ id\ nbd0$ ]] || fail "$line"
    uri=$(attach_as nbd:tcp:127.0.0.1:0 --nsid 2 --background | awk '{print $2}')
    [ "$(nbdinfo --size "$uri")" = $((32 << 20)) ]
    listed 'length == 2 and all(.state == "ready") and .[0].id == "nbd0" and .[1].devices[0].nsid == 2'
    "$ROADTRAIN" list | grep -q '^nbd0  *ready .*a.sock'
    dd if=/dev/urandom of=data.raw bs=1M count=8 status=none
    nbdcopy data.raw "$uri"
    # A lane counts at the end of a turn.
    eventually 20 prints '.[1] | .data_bytes == 8388608 and .in_flight == 0' "$ROADTRAIN" status --json
    holds printed.json 'all(.state == "connected") and .[0].devices[0].capacity_bytes == 67108864'
    holds printed.json '.[1] | .errors == 0 and .recent.iops > 0 and .policy == "auto" and .devices[0].block_bytes == 4096'
    "$ROADTRAIN" status nbd1 | grep -q 'policy auto'

    "$ROADTRAIN" detach "$work/a.sock" | grep -q '^nbd0: detached'
    [ ! -e a.sock ]
    listed 'length == 1 and .[0].id == "nbd1"'

    second=$(pid_of nbd1)
    kill -KILL "$second"
    ended "$second" 60
    listed '.[0].state == "gone"'
    fails 1 "$ROADTRAIN" status
    grep -q 'nbd1 is gone' said.log
    "$ROADTRAIN" detach --all --json >detached.json
    holds detached.json 'length == 1 and .[0].how == "gone"'
    nothing_left
    "$ROADTRAIN" detach --all
    fails 1 "$ROADTRAIN" detach nbd1
    fails 1 "$ROADTRAIN" status nbd1
    "$ROADTRAIN" status | grep -q nothing
}

# A namespace that grows is seen.
test_life_status_follows_the_namespace() {
    configure mem:16MiB
    background target.log "$ROADTRAIN" serve --config target.toml
    until_line target.log '^ready' "$pid"
    attach_as "nbd:unix:$work/a.sock" --background
    sed -i 's/^size = .*/size = "32MiB"/' target.toml
    kill -HUP "$pid"
    eventually 30 prints '.[0].devices[0].capacity_bytes == 33554432' "$ROADTRAIN" status --json
}

test_life_background_says_why_it_fails() {
    serve --namespace mem:16MiB
    fails 1 attach_as "nbd:unix:$work/a.sock" --nsid 9 --background
    grep -q 'no namespace 9' said.log
    fails 1 attach_as "nbd:unix:$work/none/a.sock" --background
    fails 2 attach_as "nbd:unix:$work/a.sock" --loop --background
    fails 3 "$ROADTRAIN" attach -a 127.0.0.1 -s 1 -n "$nqn" --as "nbd:unix:$work/a.sock" --background
    grep -q 'cannot reach' said.log
    [ "$(wc -l <said.log)" = 1 ] || { cat said.log; fail 'said more than once'; }
    nothing_left
}

is_link() { [ "$(readlink "$1")" = "$2" ]; }

# It has a session of its own, holds nothing of its caller, and logs where it says.
test_life_background_is_on_its_own() {
    local daemon
    serve --namespace mem:16MiB
    exec 7>lock
    flock 7
    attach_as "nbd:unix:$work/a.sock" --background
    attach_as "nbd:unix:$work/b.sock" --background --log own.log -v
    exec 7>&-
    flock --nonblock lock true || fail 'the lock is still held'
    daemon=$(pid_of nbd0)
    [ "$(ps -o sid= -p "$daemon" | tr -d ' ')" = "$daemon" ] || fail 'not a session of its own'
    [ "$(ps -o ppid= -p "$daemon" | tr -d ' ')" != $$ ] || fail 'our child'
    # It lets go of them when it has said that it is ready.
    eventually 20 is_link "/proc/$daemon/cwd" /
    eventually 20 is_link "/proc/$daemon/fd/1" /dev/null
    kill -KILL "$target"
    local n
    for n in $(seq 100); do ! grep -q 'connecting again' run/nbd0/log || break; sleep 0.1; done
    grep -q 'connecting again' run/nbd0/log own.log
    "$ROADTRAIN" detach --all
    nothing_left
}

# Ctrl-C while it connects: nothing of it stays, in the foreground and in the background.
test_life_interrupted_while_connecting() {
    local mode
    serve --namespace mem:16MiB
    stopped "$target"
    for mode in --foreground --background; do
        background attach.log "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" \
            --as "nbd:unix:$work/a.sock" $mode
        eventually 20 is_listed 'length == 1 and .[0].state == "starting"'
        eventually 20 leads_to_target 1
        kill -INT "$pid"
        ended "$pid" 30
        ! wait "$pid" || fail 'status 0'
        grep -q interrupted attach.log
        nothing_left
    done
    kill -CONT "$target"
}

# A terminal that is closed ends what runs in it, and nothing else.
test_life_hangup() {
    local how daemon
    serve --namespace mem:16MiB
    for how in '' nohup; do
        # shellcheck disable=SC2086
        background attach.log $how "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" \
            --as "nbd:unix:$work/a.sock"
        until_line attach.log '^ready' "$pid"
        kill -HUP "$pid"
        [ "$how" = nohup ] || { ended "$pid" 15 && nothing_left; }
    done
    attach_as "nbd:unix:$work/b.sock" --background
    daemon=$(pid_of nbd1)
    kill -HUP "$daemon"
    # A signal that ends a process does so at once, or wakes what ends it; both serve for some time then.
    nbdinfo --size "nbd+unix:///?socket=$work/a.sock"
    nbdinfo --size "nbd+unix:///?socket=$work/b.sock"
    sleep 0.3
    alive "$pid" || fail 'nohup was not heeded'
    alive "$daemon" || fail 'it has no terminal'
    "$ROADTRAIN" detach --all
    nothing_left
}

test_life_places_are_not_shared() {
    serve --namespace mem:16MiB
    attach_as "nbd:unix:$work/a.sock" --id disk --background
    fails 1 attach_as "nbd:unix:$work/a.sock" --background
    grep -q 'attachment disk (process [0-9]*) is there' said.log
    fails 1 attach_as "nbd:unix:$work/b.sock" --id disk
    grep -q 'has that name' said.log
    fails 2 attach_as "nbd:unix:$work/b.sock" --id a/b
    nbdinfo --size "nbd+unix:///?socket=$work/a.sock"
}

# What was killed is started again in its place, as a service manager does it.
test_life_started_again_after_a_kill() {
    local first
    serve --namespace mem:16MiB
    attach_as "nbd:unix:$work/a.sock" --id disk --background
    first=$(pid_of disk)
    kill -KILL "$first"
    ended "$first" 60
    attach_as "nbd:unix:$work/a.sock" --id disk --background
    [ "$(pid_of disk)" != "$first" ]
    nbdinfo --size "nbd+unix:///?socket=$work/a.sock"
    "$ROADTRAIN" detach "$nqn"
    nothing_left
}

# When the target is away status says so, by its exit status, too.
test_life_status_without_a_target() {
    local n rc=0
    serve --namespace "file:$work/disk.img,size=16MiB"
    attach_as "nbd:unix:$work/a.sock" --background
    kill -KILL "$target"
    ended "$target" 60
    for n in $(seq 100); do "$ROADTRAIN" status nbd0 >status.log 2>&1 || break; sleep 0.1; done
    grep -q 'reconnecting for' status.log
    fails 3 "$ROADTRAIN" status nbd0
    "$ROADTRAIN" status --json >status.json 2>/dev/null || true
    holds status.json '.[0] | .state == "reconnecting" and (.error | length > 0) and .lanes[0].state == "reconnecting"'
    serve --namespace "file:$work/disk.img,size=16MiB"
    for n in $(seq 100); do ! "$ROADTRAIN" status nbd0 >status.log 2>&1 || break; sleep 0.1; done
    "$ROADTRAIN" status --json >status.json
    holds status.json '.[0] | .state == "connected" and .lanes[0].reconnects == 1 and .devices[0].capacity_bytes == 16777216'
    # Another disk under its NSID is not shown as the one that was there.
    kill -KILL "$target"
    ended "$target" 60
    serve --namespace mem:16MiB
    for n in $(seq 100); do
        "$ROADTRAIN" status nbd0 >status.log 2>&1 || rc=$?
        ! grep -q 'problem  namespace 1 is removed' status.log || break
        sleep 0.1
    done
    [ $rc = 1 ] || fail "status $rc: $(cat status.log)"
    "$ROADTRAIN" status nbd0 --json >status.json 2>error.log || true
    holds status.json '.[0] | .state == "connected" and .devices[0].capacity_bytes == null and (.problems | length) == 1'
    kill -KILL "$target"
    "$ROADTRAIN" detach nbd0 --timeout 20
    nothing_left
}

# A target that moves is found again by its name, which is resolved for each connection.
test_life_a_name_that_leads_elsewhere() {
    local n first same=mem:16MiB,uuid=6f2f0c51-6a0c-4f0e-9a55-0c6c2f1f7a10
    unshare --mount true 2>/dev/null || skip 'mount namespaces are not allowed'
    serve --namespace "$same"
    first=$target port=$port
    echo '127.0.0.1 moves.test' >hosts
    background attach.log unshare --mount sh -c 'mount --bind "$1" /etc/hosts && shift && exec "$@"' - "$work/hosts" \
        "$ROADTRAIN" attach -a moves.test -s "$port" -n "$nqn" --as "nbd:unix:$work/a.sock" --reconnect-delay 0.1
    until_line attach.log '^ready' "$pid"
    listed ".[0].address == \"moves.test:$port\""
    background second.log "$ROADTRAIN" serve -a 127.0.0.2 -s "$port" -n "$nqn" --namespace "$same"
    until_line second.log '^ready' "$pid"
    printf '%s\n' '127.0.0.3 moves.test' '127.0.0.2 moves.test' >hosts
    kill -KILL "$first"
    until_line attach.log "moves.test:$port is at 127.0.0.2:$port now" "$pid"
    for n in $(seq 100); do ! "$ROADTRAIN" status nbd0 >status.log 2>&1 || break; sleep 0.1; done
    "$ROADTRAIN" status
    nbdinfo --size "nbd+unix:///?socket=$work/a.sock"
}

# A target that hangs does not delay detach, which ends soon, in order, and reports what was lost.
test_life_detach_from_a_target_that_hangs() {
    local n
    serve --namespace mem:16MiB
    dd if=/dev/urandom of=data.raw bs=1M count=4 status=none
    attach_as "nbd:unix:$work/a.sock" --background
    stopped "$target"
    background nbdcopy.log nbdcopy data.raw "nbd+unix:///?socket=$work/a.sock"
    eventually 30 waits_for_an_answer
    fails 1 "$ROADTRAIN" detach nbd0 --timeout 15
    grep -qE 'lost: [1-9][0-9]* requests' said.log || { cat said.log; fail 'does not say what was lost'; }
    ! grep -q killing said.log || { cat said.log; fail 'took too long'; }
    nothing_left
    # Its writes may still be executed: the next one has the controller ended first.
    grep -qE 'lost: controller [0-9]+, .* may still execute writes .*: namespace 1 blocks' said.log ||
        { cat said.log; fail 'does not say which blocks are open'; }
    [ -s run/.open-nbd0.json ] || fail "nothing is kept for the next one: $(ls -A run)"
    kill -CONT "$target"

    # With nothing under way nothing is lost.
    attach_as "nbd:unix:$work/a.sock" --background
    grep 'the target has ended the controller that was lost' run/nbd0/log
    stopped "$target"
    "$ROADTRAIN" detach nbd0 --timeout 15 | grep '^nbd0: detached'
    [ ! -e run/.open-nbd0.json ] || fail 'what has ended is still kept'
    kill -CONT "$target"
}

# has_asked PID: whether it has connected to another process
has_asked() { readlink "/proc/$1"/fd/* 2>/dev/null | grep -q '^socket:'; }

# A process that does not end is killed: in time, or at Ctrl-C; and what it leaves is removed.
test_life_detach_insists() {
    local stopped
    serve --namespace mem:16MiB
    attach_as "nbd:unix:$work/a.sock" --background
    stopped=$(pid_of nbd0)
    stopped "$stopped"
    fails 1 "$ROADTRAIN" detach nbd0 --timeout 1
    grep -q 'not within 1.00 s: killing process' said.log
    grep -q "removed socket:$work/a.sock" said.log
    nothing_left

    attach_as "nbd:unix:$work/a.sock" --background
    stopped=$(pid_of nbd0)
    stopped "$stopped"
    background detach.log "$ROADTRAIN" detach nbd0
    eventually 20 has_asked "$pid"
    kill -INT "$pid"
    ended "$pid" 30
    grep -q 'interrupted: killing process' detach.log
    ended "$stopped" 60
    nothing_left
}

test_life_sigterm_undoes_all() {
    local signal
    serve --namespace mem:16MiB
    for signal in TERM INT; do
        attach
        listed '.[0].state == "ready"'
        kill -"$signal" "$attached"
        ended "$attached" 5
        wait "$attached" || fail "status $?"
        nothing_left
    done
}

watched_more_than() { [ "$(jq -s length watch.log)" -gt "$1" ]; }

test_life_status_is_watched() {
    serve --namespace mem:16MiB
    attach_as "nbd:unix:$work/a.sock" --background
    background watch.log "$ROADTRAIN" status --watch=0.1 --json
    eventually 20 watched_more_than 2
    kill "$pid"
    [ "$(jq -s 'length > 2 and all(.[0].state == "connected")' watch.log)" = true ] || fail 'not seen'
}

test_life_units() {
    command -v systemd-analyze >/dev/null || skip 'systemd-analyze is not installed'
    local unit
    for unit in "$top"/systemd/*.service; do
        sed "s|/usr/local/bin/roadtrain|$ROADTRAIN|" "$unit" >"${unit##*/}"
    done
    systemd-analyze verify --man=no ./*.service 2>said.log || true
    ! grep -F -e .service said.log || fail 'systemd does not take a unit'
}

# A target that was killed stays in the list, for the operator. A command removes what it has left.
test_life_a_killed_target_is_shown() {
    local rc=0
    serve --namespace mem:16MiB
    export ROADTRAIN_RUNTIME_DIR=$work/served
    "$ROADTRAIN" status target0 >status.log
    ! "$ROADTRAIN" detach target0 2>detach.log || fail 'it runs'
    grep -q 'is a target that runs' detach.log
    kill -KILL "$target"
    ended "$target" 60
    "$ROADTRAIN" status >status.log 2>error.log || rc=$?
    [ $rc = 1 ] && grep -q 'target0 is gone' error.log || fail "status $rc: $(cat error.log)"
    grep -q '^target0  serve  gone$' status.log
    "$ROADTRAIN" list --json >list.json
    holds list.json 'length == 1 and .[0].state == "gone"'
    "$ROADTRAIN" detach --all >detach.log
    grep -q '^target0: was gone' detach.log
    "$ROADTRAIN" status >status.log
    grep -q 'nothing is attached or served here' status.log
}

# Root sees a user's attachments and that they are the user's; no user sees root's.
test_life_root_sees_every_user() {
    local uid=65533 folder=/tmp/roadtrain-65533 rc=0 served
    [ "$(id -u)" = 0 ] || skip 'needs root'
    [ ! -e $folder ] || skip "$folder is there"
    trap 'rm -rf /tmp/roadtrain-65533' EXIT
    setpriv --reuid $uid --clear-groups test -x "$ROADTRAIN" || skip "user $uid cannot run $ROADTRAIN"
    install -d -o $uid -m 700 $folder
    port=$(free_port)
    background user.log setpriv --reuid $uid --clear-groups env -u ROADTRAIN_RUNTIME_DIR -u XDG_RUNTIME_DIR \
        "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n nqn.2026-11.test:user --namespace mem:16MiB --id of-a-user
    served=$pid
    until_line user.log '^ready' "$served"
    env -u ROADTRAIN_RUNTIME_DIR "$ROADTRAIN" status of-a-user --json >status.json
    holds status.json ".[0] | .state == \"serving\" and .uid == $uid and .pid == $served"
    env -u ROADTRAIN_RUNTIME_DIR "$ROADTRAIN" list --json >list.json
    holds list.json 'any(.[]; .id == "of-a-user" and .state == "serving")'
    # A socket in that folder that another user has put there is not spoken to.
    rm $folder/targets/of-a-user/control.sock
    python3 -c 'import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); time.sleep(60)' \
        $folder/targets/of-a-user/control.sock &
    local other=$!
    for _ in $(seq 100); do [ ! -e $folder/targets/of-a-user/control.sock ] || break; sleep 0.05; done
    env -u ROADTRAIN_RUNTIME_DIR "$ROADTRAIN" status of-a-user >status.log 2>&1 || rc=$?
    kill "$other"
    [ $rc = 1 ] && grep -q "user 0 listens at .*, not user $uid" status.log || fail "status $rc: $(cat status.log)"
}
