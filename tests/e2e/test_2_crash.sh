# shellcheck shell=bash
# The target dies and comes back. What was acknowledged is there, and every request is answered once: fio
# and libnbd would notice a lost answer as a hang, a second one as an unknown cookie.

# restart [OPTIONS of serve]: kill -9 and start again at once on the same port
restart() {
    kill -KILL "$target"
    ended "$target" 5
    serve "$@"
}

test_crash_under_write_load() {
    local fio=('--name=crash' '--ioengine=nbd' '--bs=4k' '--size=64M' '--iodepth=32' '--verify=crc32c'
        '--verify_fatal=1' '--fsync=32' '--eta=never')
    serve --namespace "file:$work/disk.img,size=64MiB"
    attach --reconnect-delay 1
    background fio.log fio "${fio[@]}" --uri="$uri" --rw=randwrite --rate=16m --output=fio-result.log
    local load=$pid n
    for n in 1 2 3; do
        sleep 0.7
        alive "$load" || { cat fio.log; fail "fio ended before crash $n"; }
        restart --namespace "file:$work/disk.img,size=64MiB"
    done
    wait "$load"
    # Once more from the file that the dead targets left, through a fresh target and host.
    kill "$attached"
    ended "$attached" 10
    restart --namespace "file:$work/disk.img,size=64MiB"
    attach
    fio "${fio[@]}" --uri="$uri" --rw=randwrite --verify_only=1 --output=fio-again.log
}

# The load generator checks every block it reads against what it last wrote there.
test_crash_under_verified_mix() {
    serve --namespace "file:$work/disk.img,size=64MiB"
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw randrw --bs 4k --depth 32 --lanes 2 \
        --seconds 6 --reconnect-delay 1 --verify --json >bench.json 2>bench.log &
    local load=$!
    echo $load >>.pids
    sleep 2
    restart --namespace "file:$work/disk.img,size=64MiB"
    sleep 1.5
    restart --namespace "file:$work/disk.img,size=64MiB"
    wait "$load" || { cat bench.log; fail 'bench saw errors'; }
    holds bench.json '.errors == 0 and .iops > 0'
}

# A target that does not come back: requests fail after the controller-loss timeout, none hangs.
test_crash_for_good() {
    serve --namespace mem:64MiB
    background bench.log "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw randread --bs 4k \
        --depth 8 --seconds 60 --reconnect-delay 1 --ctrl-loss-tmo 3 --json
    local load=$pid rc=0
    sleep 1
    kill -KILL "$target"
    sleep 2
    alive "$load" || { cat bench.log; fail 'requests failed before the controller-loss timeout'; }
    ended "$load" 30
    wait "$load" || rc=$?
    [ $rc != 0 ] || fail 'bench ended well although its target was gone'
}
