# shellcheck shell=bash
# Our host against the kernel's target.

thorough+=(kernel_target_paths)
for name in kernel_target_{bench_verifies,qemu_img_round_trip,paths,is_served_again}; do
    group_of[$name]=${RT_VM_KERNEL:-stable}
done

test_kernel_target_bench_verifies() {
    kernel_target -e SIZE=256
    local address=(-t tcp -a "$target_address" -s "$port" -n "$nqn")
    "$ROADTRAIN" discover -t tcp -a "$target_address" -s "$port" | grep -q "$nqn"
    "$ROADTRAIN" identify "${address[@]}" --json >identify.json
    holds identify.json '.namespaces[0].capacity_bytes == 268435456'
    local options
    for options in '--bs 4k --lanes 2 --policy i10' '--bs 64k --lanes 1' \
        '--bs 4k --lanes 1 --hdr-digest --data-digest'; do
        # shellcheck disable=SC2086
        "$ROADTRAIN" bench "${address[@]}" --rw randrw --depth 16 --seconds 1 --verify --json $options >bench.json
        holds bench.json '.errors == 0 and .iops > 0'
    done
    kernel_target_ends
}

test_kernel_target_qemu_img_round_trip() {
    kernel_target -e SIZE=64 -e BS=4096
    truncate -s 64M disk.raw
    dd if=/dev/urandom of=disk.raw bs=1M count=12 seek=3 conv=notrunc status=none
    attach --hdr-digest --data-digest
    qemu-img convert -n -f raw -O raw disk.raw "$uri"
    qemu-img compare -f raw -F raw disk.raw "$uri"
    qemu-io -f raw -c 'discard 0 4M' -c 'write -z 4M 4M' -c 'write -f -P 7 8M 64k' -c 'flush' \
        -c 'read -P 0 4M 4M' -c 'read -P 7 8M 64k' "$uri"
    end_all "$attached"
    kernel_target_ends
}

# The kernel's target behind ours: its namespace as a store. It has neither Compare and Write nor Write Uncorrectable.
test_kernel_target_is_served_again() {
    kernel_target -e SIZE=64 -e BS=4096
    local back="nvme:$target_address:$port/$nqn/1" front=nqn.2026-11.test:front at
    at=$(free_port)
    background front.log env ROADTRAIN_RUNTIME_DIR="$work/front.run" "$ROADTRAIN" serve -a 127.0.0.1 -s "$at" -n "$front" \
        --namespace "$back"
    local served=$pid address=(-a 127.0.0.1 -s "$at" -n "$front")
    until_line front.log '^ready' "$served" 60
    "$ROADTRAIN" identify "${address[@]}" --json >front.json
    "$ROADTRAIN" identify -a "$target_address" -s "$port" -n "$nqn" --json >back.json
    holds front.json '.namespaces[0] | .capacity_bytes == 67108864 and .block_bytes == 4096'
    diff <(jq '.namespaces[0].uuid' front.json) <(jq '.namespaces[0].uuid' back.json)
    "$ROADTRAIN" bench "${address[@]}" --rw randrw --bs 4k --depth 16 --size 8MiB --seconds 2 --verify --json >bench.json
    holds bench.json '.errors == 0 and .blocks_checked > 0'
    port=$at nqn=$front target_address=127.0.0.1 attach
    qemu-io -f raw -c 'discard 0 4M' -c 'write -z 4M 4M' -c 'write -f -P 7 8M 64k' -c 'flush' \
        -c 'read -P 0 4M 4M' -c 'read -P 7 8M 64k' "$uri"
    end_all "$attached" "$served"
    kernel_target_ends
}

# Two ports of the kernel's target and our host over both, under verified load. A file in /share requests from the guest a
# port's ANA state, or to take the subsystem away from a port and give it back.
test_kernel_target_paths() {
    local other=${kernel_ports[1]} load
    share
    mkdir share/ask
    # shellcheck disable=SC2016
    kernel_target -e SIZE=64 -e 'SETUP=
        mkdir nvmet/ports/2
        for name in addr_trtype addr_adrfam addr_traddr param_inline_data_size; do
            cat $port/$name >nvmet/ports/2/$name
        done
        echo 4421 >nvmet/ports/2/addr_trsvcid
        ln -s /sys/kernel/config/nvmet/subsystems/$NQN nvmet/ports/2/subsystems/' -e 'THEN=
        cd nvmet/ports
        until [ -e /share/end ]; do
            sleep 0.1
            set -- /share/ask/*
            [ -e "$1" ] || continue
            ask=${1##*/}
            at=${ask%%-*} state=${ask#*-}
            case $state in
            away) rm $at/subsystems/$NQN ;;
            back) ln -s /sys/kernel/config/nvmet/subsystems/$NQN $at/subsystems/ ;;
            *) echo $state >$at/ana_groups/1/ana_state ;;
            esac
            rm $1
        done'
    socket=$work/nbd.sock
    background attach.log "$ROADTRAIN" attach -t tcp -a "$target_address:$port" -a "$target_address:$other" -n "$nqn" \
        --reconnect-delay 1 --as "nbd:unix:$socket"
    attached=$pid
    until_line attach.log '^ready' "$attached" 60
    background fio.log fio --name=load --ioengine=nbd --uri="nbd+unix:///?socket=$socket" --rw=randwrite --bs=4k \
        --size=4M --iodepth=8 --verify=crc32c --verify_fatal=1 --loops=100000 --trigger-file=enough --eta=never
    load=$pid
    carries 'live optimized busy' 'live optimized busy'
    ask 1-inaccessible
    carries 'live inaccessible idle' 'live optimized busy'
    ask 2-inaccessible
    carries 'live inaccessible idle' 'live inaccessible idle' # requests wait
    ask 1-non-optimized
    carries 'live non-optimized busy' 'live inaccessible idle'
    ask 2-optimized
    carries 'live non-optimized idle' 'live optimized busy'
    ask 2-away
    carries 'live non-optimized busy' 'connecting optimized idle'
    ask 1-optimized
    carries 'live optimized busy' 'connecting optimized idle'
    ask 2-back
    carries 'live optimized busy' 'live optimized busy'
    : >enough
    ended "$load" 60
    wait "$load" || { cat fio.log; fail 'the load failed'; }
    ! grep -E 'err= *[1-9]' fio.log || fail 'the load failed'
    end_all "$attached"
    kernel_target_ends
}

# ask PORT-STATE: requests it from the kernel's target, and waits until it is so
ask() {
    : >"share/ask/$1"
    until_gone "share/ask/$1"
}

# carries 'STATE ANA busy|idle'...: soon each path of the attachment is so, and carries requests or none
carries() {
    local n now expected
    expected=$(printf '%s\n' "$@")
    for ((n = 0; n < 240; n++)); do
        mv status.json before.json 2>/dev/null || true
        "$ROADTRAIN" status --json >status.json || true
        now=$(jq -nr --slurpfile before before.json --slurpfile now status.json '
            [$before[0][0].paths, $now[0][0].paths] | transpose[] |
            "\(.[1].state) \(.[1].ana) \(if .[1].requests > .[0].requests then "busy" else "idle" end)"' || true)
        [ "$now" != "$expected" ] || return 0
        sleep 0.5
    done
    cat status.json
    fail "paths are not $*, but $now"
}
