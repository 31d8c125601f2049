# shellcheck shell=bash
# Several paths to a namespace: their states, targets that share a subsystem, and a target that shuts down gracefully.

# ways FILTER: what `status` says of the target's listeners
ways() {
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --json >status.json
    holds status.json ".[0] | $1"
}

# ways_are FILTER: whether it says that
ways_are() { prints ".[0] | $1" env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --json; }

ctl() { env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl listener set "$@"; }

# no_way STATUS TEXT OPTIONS...: such a `ctl` fails like that
no_way() {
    local rc=0
    ctl "${@:3}" >ctl.out 2>&1 || rc=$?
    [ "$rc" = "$1" ] || fail "status $rc: $(cat ctl.out)"
    grep -qF -- "$2" ctl.out || fail "$(cat ctl.out)"
}

# stands_still: what was under way has been counted
stands_still() {
    ways '.data_bytes'
    before=$(jq '.[0].data_bytes' status.json)
    sleep 0.2
    ways_are ".data_bytes == $before"
}

# A host with one way waits while that is not to be used, and its programs see no error.
test_ana_states_follow_the_command() {
    local load before
    serve -a 127.0.0.2 --namespace mem:16MiB --ana 127.0.0.2=non-optimized
    ways ".ana_listeners == [{listener: \"127.0.0.1:$port\", ana: \"optimized\"},
                   {listener: \"127.0.0.2:$port\", ana: \"non-optimized\"}]"
    background bench.log "$ROADTRAIN" bench --rw randrw --bs 4k --depth 8 --seconds 600 --verify --json \
        -t tcp -a 127.0.0.1 -s "$port" -n "$nqn"
    load=$pid
    eventually 20 ways_are '.data_bytes > 0 and .subsystems[0].controllers[0].ana == "optimized"'
    ctl -a "127.0.0.1:$port" --ana inaccessible >ctl.out
    grep -q "listener 127.0.0.1:$port: ANA inaccessible" ctl.out || fail "$(cat ctl.out)"
    ways '.ana_listeners[0].ana == "inaccessible" and .subsystems[0].controllers[0].ana == "inaccessible"'
    eventually 20 stands_still
    before=$(jq '.[0].data_bytes' status.json)
    sleep 0.5
    ways ".data_bytes == $before"  # it queries, and nothing is executed
    ctl -a "127.0.0.1:$port" --ana non-optimized >ctl.out
    eventually 20 ways_are ".data_bytes > $before"
    kill -INT "$load"
    ended "$load" 20
    wait "$load" || { cat bench.log; fail 'the load failed'; }

    no_way 2 'there is no listener 127.0.0.1:9' -a 127.0.0.1:9 --ana optimized
    no_way 2 'there is no listener ether' -a ether --ana optimized
    no_way 2 'possible values' -a "127.0.0.1:$port" --ana good
}

# The states of the file come back with a reload; a state of no listener is refused.
test_ana_states_are_in_the_file() {
    configure mem:16MiB
    {
        cat target.toml
        printf '\n[ana]\n"127.0.0.1:%s" = "non-optimized"\n' "$port"
    } >with.toml
    mv with.toml target.toml
    serve_configured
    ways '.ana_listeners[0].ana == "non-optimized"'
    ctl -a "127.0.0.1:$port" --ana change >ctl.out
    grep -q 'until the next reload or restart' ctl.out || fail "$(cat ctl.out)"
    ways '.ana_listeners[0].ana == "change"'
    kill -HUP "$target"
    until_line "$work/target.log" 'ANA non-optimized' "$target"
    ways '.ana_listeners[0].ana == "non-optimized"'
    sed -i "s/:$port\"/:9\"/" target.toml
    ! "$ROADTRAIN" serve --config target.toml --check-config 2>error.log || fail 'a stray state'
    grep -q 'there is no listener 127.0.0.1:9' error.log || fail "$(cat error.log)"
}

# Two processes are one subsystem for a host: other controllers, the same namespace.
test_ana_two_targets_one_subsystem() {
    local uuid=6b1a5e1c-4c52-4a0e-9d0e-3a4f5b6c7d8e at
    serve --namespace "mem:16MiB,uuid=$uuid" --cntlid-range 1-99 --serial SHARED-1 --model "A shared disk"
    for at in first second; do
        "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" --json >"$at.json"
        [ $at = second ] || { port=; serve --namespace "mem:16MiB,uuid=$uuid" --cntlid-range 100-199 \
            --serial SHARED-1 --model "A shared disk"; }
    done
    holds first.json '.controller.cntlid < 100 and .controller.serial == "SHARED-1" and .controller.model == "A shared disk"'
    holds second.json '.controller.cntlid >= 100 and .controller.cntlid < 200'
    local same='[.controller.serial, .controller.model, .controller.nqn, (.namespaces[] | .uuid, .nguid)]'
    [ "$(jq -c "$same" first.json)" = "$(jq -c "$same" second.json)" ] || { cat first.json second.json; fail 'not one'; }
    grep -q "$uuid" first.json
    ctl -a "127.0.0.1:$port" --ana non-optimized >ctl.out  # the target is found by its listener
    grep -q "127.0.0.1:$port: ANA non-optimized" ctl.out || fail "$(cat ctl.out)"
}

# A target leaves while a host with another path is busy: no error, and no noticeable pause.
alone+=(ana_a_departure_is_no_pause)
thorough+=(ana_a_departure_is_no_pause)  # alone with the machine
test_ana_a_departure_is_no_pause() {
    local uuid=6b1a5e1c-4c52-4a0e-9d0e-3a4f5b6c7d8e n stays pauses=() leaves load first
    for n in 1 2 3 4 5; do
        port='' && serve --namespace "null:1GiB,uuid=$uuid" --cntlid-range 1-99
        leaves=$target first=$port
        port='' && serve --namespace "null:1GiB,uuid=$uuid" --cntlid-range 100-199
        stays=$target
        background bench.log "$ROADTRAIN" bench --rw randrw --bs 4k --depth 32 --seconds 2 --json -n "$nqn" \
            -t tcp -a "127.0.0.1:$first" -a "127.0.0.1:$port"
        load=$pid
        sleep 1
        kill -TERM "$leaves"
        ended "$leaves" 5
        wait "$leaves" || fail "status $?"
        ended "$load" 20
        wait "$load" || { cat bench.log; fail 'the load failed'; }
        sed -n '/^{/,$p' bench.log >bench.json
        holds bench.json '.errors == 0'
        pauses+=("$(jq '.latency.max_us / 1000 | floor' bench.json)")
        kill -TERM "$stays"
        ended "$stays" 5
    done
    echo "measured: longest latencies while a target leaves: ${pauses[*]} ms"
    # Others use this machine, too: most of them count.
    [ "$(printf '%s\n' "${pauses[@]}" | sort -n | sed -n 3p)" -le 100 ] || fail "pauses of ${pauses[*]} ms"
}

# A busy host is notified, its commands are finished, and the target ends soon.
test_ana_a_target_takes_leave() {
    local begun
    serve --namespace "file:$work/disk.img,size=64MiB" --drain-timeout 20
    background bench.log "$ROADTRAIN" bench --rw randrw --bs 4k --depth 32 --lanes 2 --seconds 600 \
        -t tcp -a 127.0.0.1 -s "$port" -n "$nqn"
    local load=$pid
    moves_data_of_hosts
    begun=$EPOCHREALTIME
    kill -TERM "$target"
    ended "$target" 60
    wait "$target" || fail "status $?"
    grep -q 'hosts are notified to use other paths' "$work/target.log" || { cat "$work/target.log"; fail 'not notified'; }
    grep -q 'nothing is outstanding' "$work/target.log" || { cat "$work/target.log"; fail 'not waited for'; }
    echo "ended within $(bc <<<"$EPOCHREALTIME - $begun") s"
    kill -KILL "$load"
}

# A host that takes no answers holds the target up for as long as was said, and no longer; a second signal ends that.
test_ana_the_leave_has_an_end() {
    local seconds load begun
    for seconds in 2 60; do
        port=
        serve --namespace mem:64MiB --drain-timeout "$seconds"
        background bench.log "$ROADTRAIN" bench --rw read --bs 1m --depth 64 --seconds 600 \
            -t tcp -a 127.0.0.1 -s "$port" -n "$nqn"
        load=$pid
        eventually 20 ways_are '.data_bytes > 0 and (.subsystems[0].controllers | length) == 1'
        stopped "$load"
        sleep 0.5
        begun=$EPOCHREALTIME
        kill -TERM "$target"
        if [ "$seconds" = 60 ]; then
            sleep 1
            alive "$target" || { cat "$work/target.log"; fail 'it did not wait'; }
            kill -TERM "$target"
        fi
        ended "$target" 30
        case $seconds in
            2) waited "$begun" 2 && grep -q 'drain-timeout is over' "$work/target.log" ;;
            *) grep -q 'not waited for: [1-9]' "$work/target.log" ;;
        esac || { cat "$work/target.log"; fail 'ended otherwise'; }
        kill -KILL "$load"
    done
}
