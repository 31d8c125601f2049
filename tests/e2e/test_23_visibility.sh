# shellcheck shell=bash
# Namespaces that only some hosts see, and ANA groups: by `ctl`, by the configuration file, with hosts that are connected.

# shellcheck source=tests/lib/rpc.sh
. "$top/tests/lib/rpc.sh"

one=nqn.2026-11.test:one
two=nqn.2026-11.test:two

# sees HOST NSIDS: the host sees these namespaces, as `[1, 2]`, and no others
sees() {
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" -q "$1" --json >seen.json || fail "$(cat seen.json)"
    holds seen.json "[.namespaces[].nsid] == $2"
}

# is_seen HOST NSIDS: whether that is so by now
is_seen() { prints "[.namespaces[].nsid] == $2" "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" -q "$1" --json; }

visibly() { env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl "$@"; }

# A disk that is attached goes when it is hidden, and comes back when it is shown; another host never sees it.
test_visibility_of_namespaces_follows_ctl() {
    serve --namespace mem:4MiB --namespace mem:8MiB,hidden --namespace "mem:16MiB,host=$two"
    sees "$one" '[1]'
    sees "$two" '[1, 3]'
    visibly namespace show-to -n "$nqn" --nsid 2 "$one" >ctl.out
    grep -q "namespace 2 of $nqn: seen by $one" ctl.out || fail "$(cat ctl.out)"
    sees "$one" '[1, 2]'
    sees "$two" '[1, 3]'
    visibly namespace list --json >list.json
    holds list.json "[.[].seen_by] == [null, [\"$one\"], [\"$two\"]]"
    # A host with a disk in use is told.
    background bench.log "$ROADTRAIN" bench --rw randrw --bs 4k --depth 4 --seconds 600 --nsid 2 --json \
        -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" -q "$one"
    local load=$pid
    eventually 20 prints '.[0].data_bytes > 0' env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --json
    visibly namespace hide-from -n "$nqn" --nsid 2 "$one" >ctl.out
    sees "$one" '[1]'
    ended "$load" 60
    ! wait "$load" || fail 'the load did not notice that its namespace is gone'
    grep -qi 'namespace' bench.log || fail "$(cat bench.log)"
    # Without a list of allowed hosts, one host cannot be left out.
    refused_with 1 'hide it by --all-hosts' visibly namespace hide-from -n "$nqn" --nsid 1 "$one"
    refused_with 1 'hide-from --all-hosts' visibly namespace show-to -n "$nqn" --nsid 1 "$one"
    visibly namespace hide-from -n "$nqn" --nsid 1 --all-hosts >ctl.out
    sees "$one" '[]'
    visibly namespace show-to -n "$nqn" --nsid 1 --all-hosts >ctl.out
    sees "$two" '[1, 3]'
    refused_with 2 'HOSTNQN' visibly namespace show-to -n "$nqn" --nsid 1
    # With such a list it can.
    visibly host deny --any >ctl.out
    visibly host allow -q "$one" >ctl.out
    visibly host allow -q "$two" >ctl.out
    visibly namespace hide-from -n "$nqn" --nsid 1 "$one" >ctl.out
    sees "$one" '[]'
    sees "$two" '[1, 3]'
}

# What the file has comes back with a reload, and is saved.
test_visibility_is_in_the_file() {
    configure mem:4MiB mem:8MiB
    printf 'hosts = ["%s"]\nana_group = 7\n' "$two" >>target.toml
    printf '\n[[subsystem.ana_group]]\ngroup = 7\nlistener = "127.0.0.1:%s"\nstate = "non-optimized"\n' "$port" >>target.toml
    serve_configured
    sees "$one" '[1]'
    sees "$two" '[1, 2]'
    visibly namespace list --json >list.json
    holds list.json '[.[].ana_group] == [1, 7]'
    visibly namespace show-to --nsid 2 "$one" >ctl.out
    visibly namespace ana-group --nsid 2 8 >ctl.out
    sees "$one" '[1, 2]'
    visibly config save -o saved.toml >ctl.out
    grep -q 'ana_group = 8' saved.toml && grep -q "$one" saved.toml || fail "$(cat saved.toml)"
    "$ROADTRAIN" serve --config saved.toml --check-config >check.out 2>&1 || fail "$(cat check.out)"
    visibly config diff >diff.out
    grep -q "seen by $two, ANA group 7" diff.out || fail "$(cat diff.out)"
    kill -HUP "$target"
    eventually 20 is_seen "$one" '[1]'
    sed -i 's/group = 7/group = 513/' target.toml
    refused_with 2 'choose a number from 1 to 512' "$ROADTRAIN" serve --config target.toml --check-config
}

# served_at ADDRESS: requests that went by the path to this address
served_at() { "$ROADTRAIN" status --json | jq "[.[].paths[] | select(.address == \"$1:$port\") | .requests] | add // 0"; }

# Each of two namespaces is used by the listener at which its group is optimized, also after they have changed places.
test_visibility_groups_share_the_paths() {
    local nsid here other
    serve -a 127.0.0.2 --namespace mem:16MiB,ana-group=1 --namespace mem:16MiB,ana-group=2
    visibly listener set -n "$nqn" -a 127.0.0.2 -s "$port" --ana non-optimized --ana-group 1 >ctl.out
    visibly listener set -n "$nqn" -a 127.0.0.1 -s "$port" --ana non-optimized --ana-group 2 >ctl.out
    grep -q 'non-optimized for ANA group 2' ctl.out || fail "$(cat ctl.out)"
    for nsid in 1 2 1; do
        here=127.0.0.$nsid other=127.0.0.$((3 - nsid))
        if [ -e swapped ]; then here=127.0.0.2 other=127.0.0.1; fi
        background bench.log "$ROADTRAIN" attach -t tcp -a "127.0.0.1:$port" -a "127.0.0.2:$port" -n "$nqn" --nsid "$nsid" \
            --as "nbd:unix:$work/nbd.sock"
        attached=$pid
        until_line bench.log '^ready' "$attached"
        fio --name=verify --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd.sock" --rw=randwrite --bs=4k --size=8M \
            --iodepth=8 --verify=crc32c --verify_fatal=1 --eta=never --output=fio.log
        [ "$(served_at "$here")" -gt 4000 ] && [ "$(served_at "$other")" -lt 400 ] ||
            fail "namespace $nsid: $(served_at "$here") at $here, $(served_at "$other") at $other"
        "$ROADTRAIN" detach --all >detach.log
        if [ "$nsid" = 2 ]; then
            visibly listener set -n "$nqn" -a 127.0.0.2 -s "$port" --ana optimized --ana-group 1 >ctl.out
            visibly listener set -n "$nqn" -a 127.0.0.1 -s "$port" --ana non-optimized --ana-group 1 >ctl.out
            touch swapped
        fi
    done
}
