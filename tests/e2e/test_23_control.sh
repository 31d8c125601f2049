# shellcheck shell=bash
# One control plane: owners of what is served, the configuration as a whole, JSON-RPC at every control socket.

# shellcheck source=tests/lib/rpc.sh
. "$top/tests/lib/rpc.sh"

# from_file: a target with target.toml and state.toml; process in $target
from_file() {
    background target.log env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve --config target.toml --state state.toml
    target=$pid
    until_line target.log '^ready' "$target"
}

# o WORD...: `roadtrain ctl` at the control socket; its JSON is in r.json
o() { env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl "$@" --json >r.json 2>c.log || fail "ctl $*: $(cat c.log)"; }

# not STATUS TEXT WORD...: it ends with that status and text
not() { refused_with "$1" "$2" env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl "${@:3}"; }

# write_file [LINE]: target.toml with the subsystem $nqn and one namespace
write_file() {
    printf 'address = "127.0.0.1"\nport = %s\n[[subsystem]]\nnqn = "%s"\n%s\n[[subsystem.namespace]]\nnsid = 1\nkind = "mem"\nsize = "8MiB"\n' \
        "$port" "$nqn" "${1-}" >target.toml
}

# What the file has may be changed, until the next reload; what it has not is kept in the state, also over kill -9.
test_control_each_object_has_one_owner() {
    local other=nqn.2026-11.test:other
    nqn=nqn.2026-11.test:file
    port=$(free_port)
    write_file
    from_file
    o subsystem list && is '.[0] | .owner == "file" and .nqn == $n' --arg n $nqn
    o namespace resize --nsid 1 16MiB && is '.hint | contains("until the next reload")'
    o host deny --any
    o subsystem add -n $other --namespace "file:$work/kept.img,size=4MiB" && is 'has("hint") | not'
    [ "$(stat -c %s kept.img)" = 4194304 ]
    o namespace list -n $other && is '.[0] | .owner == "state" and .capacity_bytes == 4194304'
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n $other --json >identify.json
    # A device of the state in a subsystem of the file.
    o device add shown null:1MiB
    o namespace add -n $nqn device:shown && is '.changes[0].nsid == 2 and (.hint | contains("until the next reload"))'
    not 2 'is namespace 2 of' namespace add -n $other device:shown
    o config diff && is '(.changes | length) == 3 and .both == [] and .restart == []'
    o config reload && is '.changes | length == 3'
    o namespace list -n $nqn && is 'length == 1 and .[0].capacity_bytes == 8388608'
    o config diff && is '.changes == []'
    # Reservations persist in the same place as for a file of the configuration.
    "$ROADTRAIN" resv register -t tcp -a 127.0.0.1 -s "$port" -n $other --nsid 1 --nrkey 7 --cptpl 3 >resv.txt || fail "$(cat resv.txt)"
    [ -s kept.img.reservations ] || fail 'no reservations'
    # The state is there again, and what the file has is as the file says.
    o namespace limit -n $other --nsid 1 --iops 1000
    o namespace remove -n $nqn --nsid 1
    kill -KILL "$target" && ended "$target" 60
    from_file
    o namespace list && is '[.[] | [.nqn, .nsid, .owner, .limits.iops]] == [[$n, 1, "file", null], [$o, 1, "state", 1000]]' \
        --arg n $nqn --arg o $other
    o namespace remove -n $other --nsid 1
    o device list && is '[.[].name] | index("shown") and (index("nqn.2026-11.test:other/1") | not)'
    [ -e kept.img ] || fail 'the file is gone'
    # A reload would serve it again, so its name stays taken.
    o subsystem remove -n $nqn
    not 2 'a reload serves it again' subsystem add -n $nqn --namespace null:1MiB
    o config reload
    o subsystem list && is '[.[] | select(.owner == "file") | .nqn] == [$n]' --arg n $nqn
}

# One name in the file and in the state: the file's is served, the state's is kept.
test_control_file_and_state_have_one_name() {
    local twice=nqn.2026-11.test:twice
    nqn=nqn.2026-11.test:file
    port=$(free_port)
    write_file
    from_file
    o subsystem add -n $twice --namespace null:1MiB
    printf '[[subsystem]]\nnqn = "%s"\n[[subsystem.namespace]]\nnsid = 1\nkind = "null"\nsize = "2MiB"\n' $twice >>target.toml
    o config diff && is '.both == [$t]' --arg t $twice
    o config reload
    o namespace list -n $twice && is '.[0] | .owner == "file" and .capacity_bytes == 2097152'
    kill -TERM "$target" && ended "$target" 20
    from_file
    grep -q "$twice is in the configuration, which is served" target.log || fail "$(cat target.log)"
    o namespace list -n $twice && is '.[0] | .owner == "file" and .capacity_bytes == 2097152'
    write_file
    o config reload
    o namespace list -n $twice && is '.[0] | .owner == "state" and .capacity_bytes == 1048576'
}

# What is saved is served again, by a file and by a request.
test_control_configuration_is_saved_and_loaded() {
    local more=nqn.2026-11.test:more second
    nqn=nqn.2026-11.test:file
    port=$(free_port) second=$(free_port)
    write_file 'allow_hosts = ["nqn.2026-11.test:host"]'
    from_file
    o subsystem add -n $more --serial S7 --namespace "file:$work/more.img,size=4MiB" --allow-host nqn.2026-11.test:a
    o listener add -a 127.0.0.1 -s "$second" --ana non-optimized
    o host limit -n $more -q nqn.2026-11.test:a --iops 100
    o subsystem add -n nqn.2026-11.test:private --namespace null:1MiB
    o listener add -n nqn.2026-11.test:private -a 127.0.0.1:"$second"
    o config save -o saved.toml && is '. == true'
    grep -q 'Not here: the own listeners of nqn.2026-11.test:private' saved.toml || fail "$(cat saved.toml)"
    [ "$(stat -c %a saved.toml)" = 600 ]
    o subsystem remove -n nqn.2026-11.test:private
    o config show && is '.toml | contains("S7")'
    o subsystem list && jq -S '[.[] | select(.nqn | endswith(":private") | not) | del(.owner)]' r.json >before.json
    kill -TERM "$target" && ended "$target" 20
    rm state.toml
    cp saved.toml target.toml
    "$ROADTRAIN" serve --config target.toml --check-config || fail "$(cat saved.toml)"
    from_file
    o subsystem list && is 'all(.owner == "file")'
    cmp <(jq -S '[.[] | select(.nqn | endswith(":private") | not) | del(.owner)]' r.json) before.json || fail "$(cat r.json before.json)"
    o host list -n $more && is '.[0].limits.iops == 100'
    o listener list -n $more && is 'length == 2'
    kill -TERM "$target" && ended "$target" 20
    # The same as a request: all of it, or nothing.
    write_file
    from_file
    not 2 'exists already' config load saved.toml
    sed -i "s/$nqn/nqn.2026-11.test:again/" saved.toml
    o config load saved.toml
    o subsystem list && is '[.[].nqn] == [$a, $f, $m, "nqn.2026-11.test:private"]' --arg f $nqn --arg a nqn.2026-11.test:again --arg m $more
    not 2 'No such file' config load nowhere.toml
}

# A target without --state says once that changes are not kept; without a file there is nothing to reload.
test_control_changes_that_are_not_kept() {
    serve --namespace mem:8MiB
    o subsystem add -n nqn.2026-11.test:one --namespace null:1MiB && is '.hint | contains("serve --state")'
    o subsystem add -n nqn.2026-11.test:two
    [ "$(grep -c 'serve --state FILE' target.log)" = 1 ] || fail "$(cat target.log)"
    not 2 'without a configuration file' config diff
    not 2 'which subsystem' namespace remove --nsid 1
    not 3 'no target x runs here' --id x config show
    not 2 'of a group' gateway list
}

# An attachment speaks JSON-RPC 2.0 at its control socket, and so does a target without --rpc.
test_control_sockets_speak_json_rpc() {
    serve --namespace mem:8MiB
    attach
    local control
    control=$(find "$ROADTRAIN_RUNTIME_DIR" -name control.sock)
    "$ROADTRAIN" ctl --rpc "$control" rpc rpc_get_methods >r.json
    is '. == ["roadtrain_bitmaps", "roadtrain_recorded", "roadtrain_snapshot", "roadtrain_status", "roadtrain_stop", "rpc_get_methods"]'
    "$ROADTRAIN" ctl --rpc "$control" rpc roadtrain_status >r.json && is '.state == "connected"'
    refused_with 1 'Method not found' "$ROADTRAIN" ctl --rpc "$control" rpc nvmf_get_subsystems
    control=$(find "$work/served" -name control.sock)
    "$ROADTRAIN" ctl --rpc "$control" rpc rpc_get_methods >r.json
    is 'index("roadtrain_apply") and index("nvmf_get_subsystems") and index("roadtrain_take_over")'
    "$ROADTRAIN" ctl --rpc "$control" rpc nvmf_get_subsystems >r.json && is '.[1].owner == "file"'
    python3 - "$control" <<'PY' || fail 'an array of requests'
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'[{"jsonrpc":"2.0","id":1,"method":"roadtrain_status"},{"id":2,"method":"roadtrain_take_over"},{"id":3,"method":"no"}]')
text = b""
while not text.endswith(b"\n"):
    text += s.recv(65536)
one, two, three = json.loads(text)
assert one["result"]["state"] == "serving", one
assert two["error"]["code"] == -32601 and three["error"]["code"] == -32601, (two, three)
PY
}

# A target that was started without TLS has it after a reload.
test_control_tls_by_a_reload() {
    local host=nqn.2026-11.test:host
    nqn=nqn.2026-11.test:file
    port=$(free_port)
    write_file
    from_file
    (umask 077 && "$ROADTRAIN" keys tls >host.tls)
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" >identify.txt
    printf '[tls]\nmode = "required"\n[tls.keys]\n"%s" = "%s"\n' $host "$work/host.tls" >>target.toml
    o config diff && is '.changes | length == 1'
    o config reload
    refused '.' "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" -q $host
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" -q $host --tls --tls-key host.tls >identify.txt || fail "$(cat target.log)"
    write_file
    o config reload
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" >identify.txt
}

# An image that another program truncates is a problem before a host notices it.
test_control_truncated_image_is_a_problem() {
    serve --namespace "file:$work/disk.img,size=8MiB"
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl namespace add "file:$work/two.img,size=4MiB" >add.txt
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status >status.txt || fail "$(cat status.txt)"
    truncate -s 1M disk.img
    refused_with 1 '' env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status
    grep -q "namespace 1 of $nqn has 8388608 bytes, but its file .*/disk.img has 1048576" refused.out || fail "$(cat refused.out)"
    truncate -s 8M disk.img
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status >status.txt || fail "$(cat status.txt)"
}
