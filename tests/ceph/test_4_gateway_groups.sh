# shellcheck shell=bash
# Gateways of a group: one configuration in the cluster, and images shared out among them.

thorough+=(group_configuration_is_applied_by_all group_tries_again_what_was_refused group_shares_images_out
    group_survives_a_gateway_that_stands_still)

group_lab() {
    ceph_lab
    nqn=nqn.2026-11.test:gates
    at=(--group gates --pool rbd --ceph-conf "$ceph/ceph.conf" --ceph-id tenant)
}

group() { "$ROADTRAIN" ctl "${at[@]}" "$@"; }

# member NAME: starts a gateway; leaves its process in $gateway_NAME and its port, the same each time, in $port_NAME
member() {
    local name=$1 port=port_$1
    [ -n "${!port-}" ] || declare -g "port_$name=$(free_port)"
    [ ! -e "$name.log" ] || mv "$name.log" "$name.before.log"
    background "$name.log" env ROADTRAIN_RUNTIME_DIR="$work/$name.run" "$ROADTRAIN" serve -a 127.0.0.1 -s "${!port}" \
        --group gates --pool rbd --gateway "$name" --ceph-conf "$ceph/ceph.conf" --ceph-id tenant "${@:2}"
    declare -g "gateway_$name=$pid"
    until_line "$name.log" '^ready' "$pid" 60
}

# group_soon FILTER [SECONDS]: what `show` says fits it
group_soon() {
    local n
    for ((n = 0; n < ${2:-120} * 4; n++)); do
        group gateway list --json >show.json
        ! jq -e "$1" show.json >/dev/null || return 0
        sleep 0.25
    done
    group gateway list
    tail -n 20 ./?.log 2>/dev/null
    fail "never: $1"
}

all='[.subsystems[].namespaces[]]'
# Each image is served by its preferred gateway and by no other one.
shared="($all | length > 0 and all(.preferred != null and .served_by == [.preferred]))"

test_group_configuration_is_applied_by_all() {
    group_lab
    local rc=0
    group gateway list >none.log 2>&1 || rc=$?
    [ $rc = 1 ] && grep -q 'there is no gateway group gates in pool rbd' none.log || { cat none.log; fail "status $rc"; }
    # Without a gateway it is written all the same. Images are made; a bad change writes nothing.
    group subsystem add -n "$nqn" --namespace rbd:rbd/a,create=16MiB --namespace rbd:rbd/b,create=16MiB >add.log
    grep -q 'version 1; no gateway is there to serve it' add.log
    [ "$(rbd_tool ls | sort | tr '\n' ' ')" = 'a b ' ]
    for wrong in "--namespace rbd:rbd/a" "--namespace mem:1MiB" "--namespace rbd:rbd/none" "--namespace rbd:rbd/b,nsid=1" \
        "--require-auth"; do
        rc=0
        # shellcheck disable=SC2086
        group subsystem add -n "$nqn" $wrong >wrong.log 2>&1 || rc=$?
        [ $rc = 2 ] || [[ $rc = 1 && $wrong = *none ]] || { cat wrong.log; fail "$wrong: status $rc"; }
    done
    member one
    member two
    grep -q "^ready 127.0.0.1:$port_one $nqn\$" one.log
    # A gateway that cannot serve takes no share, and the others do not learn of it.
    rc=0
    "$ROADTRAIN" serve -a 127.0.0.1 -s "$port_one" --group gates --pool rbd --gateway three \
        --ceph-conf "$ceph/ceph.conf" --ceph-id tenant >three.log 2>&1 || rc=$?
    [ $rc = 1 ] || { cat three.log; fail "status $rc"; }
    group gateway list --json >show.json
    holds show.json '.gateways | map(.name) == ["one", "two"] or (.[] | select(.name == "three") | .state == "left")'
    ! grep -q three one.log two.log || fail 'others have heard of it'
    group gateway remove three >three.log
    group_soon ".config_version == 1 and $shared and (.gateways | map([.name, .state, .slot]) == [[\"one\", \"there\", 0], [\"two\", \"there\", 1]])"
    # Both apply what is added and removed, before the command ends.
    group subsystem add -n "$nqn" --namespace rbd:rbd/c,create=16MiB --allow-host nqn.2026-11.test:host >add.log
    grep -q 'version 2 is served by one, two' add.log || { cat add.log; fail 'not applied'; }
    local name port
    for name in one two; do
        port=port_$name
        "$ROADTRAIN" identify -a 127.0.0.1 -s "${!port}" -n "$nqn" --host-nqn nqn.2026-11.test:host --json >"$name.json"
        rc=0
        "$ROADTRAIN" identify -a 127.0.0.1 -s "${!port}" -n "$nqn" --host-nqn nqn.2026-11.test:other >no.log 2>&1 || rc=$?
        [ $rc = 3 ] || fail "another host: status $rc"
    done
    # The same disks in both: identities, serial number, model. Other controllers.
    same='[.. | objects | [.serial?, .model?, .nguid?, .uuid?] | map(select(. != null))] | map(select(length > 0))'
    [ "$(jq -c "$same" one.json)" = "$(jq -c "$same" two.json)" ] || { cat one.json two.json; fail 'they differ'; }
    [ "$(jq '[.. | .nguid? // empty] | length' one.json)" = 3 ]
    [ "$(jq '.. | .cntlid? // empty' one.json | head -n 1)" -lt 2048 ]
    [ "$(jq '.. | .cntlid? // empty' two.json | head -n 1)" -ge 2048 ]
    group namespace remove -n "$nqn" --nsid 2 --json >remove.json
    holds remove.json '.config_version == 3 and .applied == ["one", "two"] and (.refusals | length == 0)'
    group_soon "($all | map(.nsid)) == [1, 3]"
    # A key is never shown, and required by all gateways.
    "$ROADTRAIN" keys dhchap >host.key
    chmod 600 host.key
    group host keys -q nqn.2026-11.test:host --dhchap-key host.key >add.log
    group subsystem set -n "$nqn" --require-auth >>add.log
    group gateway list >show.log
    group gateway list --json >>show.log
    ! grep -q DHHC-1 show.log add.log || fail 'a key is shown'
    for name in one two; do
        port=port_$name
        rc=0
        "$ROADTRAIN" identify -a 127.0.0.1 -s "${!port}" -n "$nqn" --host-nqn nqn.2026-11.test:host >no.log 2>&1 || rc=$?
        [ $rc = 3 ] || fail "without a key: status $rc"
        "$ROADTRAIN" identify -a 127.0.0.1 -s "${!port}" -n "$nqn" --host-nqn nqn.2026-11.test:host \
            --dhchap-secret host.key >yes.log
    done
    # What one gateway cannot serve it does not, and says so; the others do.
    rc=0
    group subsystem set -n "$nqn" --require-tls >refused.log 2>&1 || rc=$?
    [ $rc = 2 ] || fail "TLS without a key: status $rc"
    # Two of one name.
    rc=0
    "$ROADTRAIN" serve -a 127.0.0.1 -s "$(free_port)" --group gates --pool rbd --gateway one \
        --ceph-conf "$ceph/ceph.conf" --ceph-id tenant >again.log 2>&1 || rc=$?
    [ $rc = 1 ] && grep -q 'a gateway called one runs' again.log || { cat again.log; fail "status $rc"; }
}

# What one cannot serve for a while it serves when it can.
test_group_tries_again_what_was_refused() {
    group_lab
    local rc=0
    rbd_tool create rbd/late --size 16M --image-feature layering
    group subsystem add -n "$nqn" --namespace rbd:rbd/a,create=16MiB >add.log
    member a
    group_soon "$shared"
    group subsystem add -n "$nqn" --namespace rbd:rbd/late >add.log 2>&1 || rc=$?
    group_soon '.gateways[0].config_version == 1 and .config_version == 2'
    until_line a.log 'version 2 is not applied' "$gateway_a"
    rbd_tool feature enable rbd/late exclusive-lock
    group_soon ".gateways[0].config_version == 2 and $shared and ($all | length == 2)"
    [ "$(grep -c 'version 2 is not applied' a.log)" = 1 ] || { cat a.log; fail 'told more than once'; }
}

# metrics_of_group: Prometheus gets the gateway, its group, and which images it serves
metrics_of_group() {
    curl -sS --max-time 60 "http://$metrics/metrics" >metrics.txt
    grep -q '^roadtrain_gateway_info{name="a",.*,group="gates"} 1$' metrics.txt || fail "$(grep gateway_info metrics.txt)"
    grep -q "^roadtrain_subsystem_metadata{nqn=\"$nqn\",.*,ha_enabled=\"yes\",group=\"gates\"} 1\$" metrics.txt ||
        fail "$(grep subsystem_metadata metrics.txt)"
    grep -q "^roadtrain_bdev_metadata{bdev_name=\"$nqn/1\",pool_name=\"rbd\",namespace=\"\",rbd_name=\"disk0\"," metrics.txt ||
        fail "$(grep bdev_metadata metrics.txt)"
    [ "$(grep -c '^roadtrain_namespace_accessible{.*} 1$' metrics.txt)" = "$(jq '.gateways[0].serves' show.json)" ] ||
        fail "$(grep accessible metrics.txt show.json)"
}

test_group_shares_images_out() {
    group_lab
    local images=() n metrics
    metrics=127.0.0.1:$(free_port)
    for ((n = 0; n < 6; n++)); do images+=(--namespace "rbd:rbd/disk$n,create=16MiB"); done
    group subsystem add -n "$nqn" "${images[@]}" >add.log
    member a --metrics "$metrics"
    member b
    group_soon "$shared and (.gateways | map(.serves) | add == 6)"
    metrics_of_group
    attach_group
    # A third gateway takes its share without a command; no other images move.
    jq -c "$all | map([.nsid, .served_by[0]])" show.json >before.json
    member c
    group_soon "$shared and (.gateways | map(.serves) | add == 6 and .[2] > 0)"
    jq -c "$all | map([.nsid, .served_by[0]])" show.json >after.json
    jq -e -s '.[0] as $old | .[1] | to_entries | all(.value == $old[.key] or .value[1] == "c")' before.json after.json >/dev/null ||
        { cat before.json after.json; fail 'others have moved'; }
    # One that leaves gives its images back at once; one that is killed loses them to the others.
    kill -TERM "$gateway_c"
    ended "$gateway_c" 20
    wait "$gateway_c" || fail "status $?"
    group_soon "$shared and (.gateways[2] | .state == \"left\" and .serves == 0)"
    [ "$(jq -c "$all | map([.nsid, .served_by[0]])" show.json)" = "$(cat before.json)" ] || fail 'not as before'
    ! grep 'takes it from its owner' a.log b.log || fail 'it was waited for, and fenced'
    kill -KILL "$gateway_b"
    group_soon "$shared and (.gateways | map(.state) == [\"there\", \"away\", \"left\"]) and .gateways[0].serves == 6"
    # It comes back as it was.
    member b
    group_soon "$shared and (.gateways[1] | .state == \"there\" and .slot == 1 and .serves > 0)"
    : >enough
    ended "$load" 120
    wait "$load" || { cat fio.log; fail 'the load failed'; }
    ! grep -E 'err= *[1-9]|verify:' fio.log || fail 'the load failed'
    # A gateway that does not come back is removed; one that runs is not.
    local rc=0
    group gateway remove a >wrong.log 2>&1 || rc=$?
    [ $rc = 2 ] && grep -q 'it runs' wrong.log || { cat wrong.log; fail "status $rc"; }
    group gateway remove c >remove.log
    group_soon '.gateways | map(.name) == ["a", "b"]'
    ! grep -h 'panicked' ./?.log || fail 'a panic'
}

# One that stands still has its images taken from it. When it goes on it finds itself fenced, and gets them back by the
# placement.
test_group_survives_a_gateway_that_stands_still() {
    group_lab
    local images=() n fault pause
    for ((n = 0; n < 3; n++)); do images+=(--namespace "rbd:rbd/disk$n,create=16MiB"); done
    group subsystem add -n "$nqn" "${images[@]}" >add.log
    member a
    member b
    group_soon "$shared and (.gateways | map(.serves) | add == 3 and all(. > 0))"
    attach_group --output-format=json --output=fio.json
    # A thousand are written, then read, then written again.
    eventually 300 prints '.[0].requests > 3000' env ROADTRAIN_RUNTIME_DIR="$work/attach.run" "$ROADTRAIN" status --json
    fault=$(date +%s%3N)
    stopped "$gateway_b"
    group_soon ".gateways[1].state == \"away\" and .gateways[0].serves == 3"
    echo "measured: a had all images $(($(date +%s%3N) - fault)) ms after b stood still"
    data_moves "$work/attach.run"
    kill -CONT "$gateway_b"
    group_soon "$shared and (.gateways[1] | .state == \"there\" and .serves > 0)"
    data_moves "$work/attach.run"
    : >enough
    ended "$load" 120
    wait "$load" || { cat fio.log; tail -n 20 ./?.log attach.log; fail 'the load failed'; }
    ! grep -E 'err= *[1-9]|verify:' fio.log || fail 'the load failed'
    holds fio.json '.jobs[0].error == 0 and .jobs[0].write.total_ios > 1000 and .jobs[0].read.total_ios > 1000'
    pause=$(jq '[.jobs[0].write, .jobs[0].read] | map(.clat_ns.max) | max / 1e6 | floor' fio.json)
    echo "measured: requests paused for $pause ms"
    # What was in the frozen gateway's hands had to wait for the fence; with no pause nothing was tested.
    ((pause >= 1000 && pause <= 25000)) || fail "paused for $pause ms"
    ! grep -h 'panicked' ./?.log || fail 'a panic'
}

# attach_group [OPTIONS of fio]
# Verified load goes to the image that b has, by the paths of a and b, from now on; leaves its process in $load.
attach_group() {
    local nsid socket=$work/group.sock
    nsid=$(jq "$all | map(select(.served_by == [\"b\"]))[0].nsid" show.json)
    [ "$nsid" != null ] || fail 'b has nothing'
    background attach.log env ROADTRAIN_RUNTIME_DIR="$work/attach.run" "$ROADTRAIN" attach -a "127.0.0.1:$port_a" \
        -a "127.0.0.1:$port_b" -n "$nqn" --nsid "$nsid" --as "nbd:unix:$socket" --keep-alive-tmo 1 --reconnect-delay 1
    until_line attach.log '^ready' "$pid"
    background fio.log fio --name=load --ioengine=nbd --uri="nbd+unix:///?socket=$socket" --rw=randwrite --bs=4k --size=4M \
        --iodepth=8 --verify=crc32c --verify_fatal=1 --loops=100000 --trigger-file=enough --eta=never "$@"
    load=$pid
}
