# shellcheck shell=bash
# The target dies and comes back. What was acknowledged is there, and every request is answered once: fio
# and libnbd would notice a lost answer as a hang, a second one as an unknown cookie.

# restart [OPTIONS of serve]: kill -9 and start again at once on the same port
restart() {
    kill -KILL "$target"
    ended "$target" 60
    serve "$@"
}

test_crash_under_write_load() {
    local fio=('--name=crash' '--ioengine=nbd' '--bs=4k' '--size=16M' '--iodepth=32' '--verify=crc32c'
        '--verify_fatal=1' '--fsync=32' '--eta=never')
    serve --namespace "file:$work/disk.img,size=64MiB"
    attach --reconnect-delay 0.2
    background fio.log fio "${fio[@]}" --uri="$uri" --rw=randwrite --rate=8m --output=fio-result.log
    local load=$pid n
    for n in 1 2 3; do
        moves_data
        alive "$load" || { cat fio.log; fail "fio ended before crash $n"; }
        restart --namespace "file:$work/disk.img,size=64MiB"
    done
    wait "$load"
    # Once more from the file that the dead targets left, through a fresh target and host.
    kill "$attached"
    ended "$attached" 30
    restart --namespace "file:$work/disk.img,size=64MiB"
    attach
    fio "${fio[@]}" --uri="$uri" --rw=randwrite --verify_only=1 --output=fio-again.log
}

# flushes: whether a flush of the attached disk succeeds; qemu-io sends one only after a write
flushes() { qemu-io -f raw -c 'write -P 9 128k 4k' -c flush "$uri" >qemu-io.log 2>&1; }

# Acknowledged writes that were not flushed are gone with the target's memory: one flush says so. A file is still there
# when only the process was killed.
test_crash_lost_writes_fail_a_flush() {
    local store
    for store in mem:16MiB,uuid=6b1a5e1c-4c52-4a0e-9d0e-3a4f5b6c7d8e "file:$work/disk.img,size=16MiB"; do
        serve --namespace "$store"
        attach --reconnect-delay 0.2
        # A program that does not flush, as qemu-io does when it ends.
        fio --name=unflushed --ioengine=nbd --uri="$uri" --rw=write --bs=4k --size=64k --output=fio.log
        restart --namespace "$store"
        eventually 30 prints_anyway '.[0].state == "connected"' "$ROADTRAIN" status --json
        if [[ $store = mem:* ]]; then
            ! flushes || fail 'the first flush says nothing of the loss'
            grep -q 'write verifier has changed' attach.log || fail 'the log says nothing of it'
        fi
        flushes || { cat qemu-io.log; fail "$store: the flush fails"; }
        kill "$attached" "$target"
        ended "$attached" 30
        ended "$target" 30
    done
}

# The load generator checks every block it reads against what it last wrote there.
test_crash_under_verified_mix() {
    serve --namespace "file:$work/disk.img,size=16MiB"
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw randrw --bs 4k --depth 32 --lanes 2 \
        --seconds 600 --reconnect-delay 0.2 --verify --json >bench.json 2>bench.log &
    local load=$! n
    echo $load >>.pids
    for n in 1 2; do
        ROADTRAIN_RUNTIME_DIR=$work/served moves_data
        restart --namespace "file:$work/disk.img,size=16MiB"
    done
    ROADTRAIN_RUNTIME_DIR=$work/served moves_data
    kill -INT "$load"
    wait "$load" || { cat bench.log; fail 'bench saw errors'; }
    holds bench.json '.errors == 0 and .iops > 0'
}

# A target that does not come back: requests fail after the controller-loss timeout, none hangs.
test_crash_for_good() {
    serve --namespace mem:64MiB
    background bench.log "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw randread --bs 4k \
        --depth 8 --seconds 600 --reconnect-delay 1 --ctrl-loss-tmo 2 --json
    local load=$pid rc=0 killed
    moves_data_of_hosts
    killed=$EPOCHREALTIME
    kill -KILL "$target"
    ended "$load" 60
    waited "$killed" 2 || { cat bench.log; fail 'requests failed before the controller-loss timeout'; }
    wait "$load" || rc=$?
    [ $rc != 0 ] || fail 'bench ended well although its target was gone'
}

# Several clients over several lanes, in blocks of all sizes, by TCP; the target is away for a while each time.
test_crash_under_many_nbd_clients() {
    serve --namespace "file:$work/disk.img,size=64MiB"
    attach_tcp --lanes 3 --reconnect-delay 0.2
    background fio.log fio --name=clients --ioengine=nbd --uri="$uri" --rw=randrw --numjobs=4 --size=16M \
        --offset_increment=16M --iodepth=8 --bssplit=512/20:4k/40:7k/20:64k/20 --verify=crc32c \
        --verify_fatal=1 --time_based --runtime=600 --eta=never
    local load=$pid n
    for n in 1 2 3; do
        moves_data
        alive "$load" || { cat fio.log; fail "fio ended before crash $n"; }
        kill -KILL "$target"
        ended "$target" 60
        eventually 30 prints_anyway '.[0].state == "reconnecting"' "$ROADTRAIN" status --json
        serve --namespace "file:$work/disk.img,size=64MiB"
    done
    moves_data
    kill -INT "$load"
    wait "$load" || [ $? = 128 ] || { cat fio.log; fail 'the clients are not content'; }
    [ "$(grep -c 'err= 0' fio.log)" = 4 ] || { cat fio.log; fail 'the clients saw errors'; }
}

# eio COMMAND of qemu-io: it fails as a broken disk does
eio() {
    ! qemu-io -f raw -c "$1" "$uri" >qemu-io.log 2>&1 || fail "'$1' succeeded"
    grep -q 'Input/output error' qemu-io.log || { cat qemu-io.log; fail 'not EIO'; }
}

# waits_for_an_answer: a request of the first attachment is in flight
waits_for_an_answer() { prints_anyway '.[0].in_flight > 0' "$ROADTRAIN" status --json; }

# A target that stays away: an NBD client waits, gets EIO after the controller-loss timeout, and all is well
# when the target is back. Whatever happens, detaching does not hang.
test_crash_for_good_under_nbd() {
    serve --namespace "file:$work/disk.img,size=64MiB"
    attach --lanes 2 --reconnect-delay 0.2 --ctrl-loss-tmo 2
    qemu-io -f raw -c 'write -P 7 0 1M' -c flush "$uri"
    local killed=$EPOCHREALTIME waits n
    kill -KILL "$target"
    ended "$target" 60
    background wait.log qemu-io -f raw -c 'read -P 7 0 1M' "$uri"
    waits=$pid
    ended "$waits" 60
    waited "$killed" 2 || { cat wait.log; fail 'the request did not wait'; }
    grep -q 'Input/output error' wait.log || { cat wait.log; fail 'not EIO'; }
    eio 'write 0 4k'
    # Which says nothing of how it fails.
    ! qemu-io -f raw -c flush "$uri" || fail 'a flush succeeded'
    serve --namespace "file:$work/disk.img,size=64MiB"
    for n in $(seq 100); do
        ! qemu-io -f raw -c 'read -P 7 0 1M' "$uri" >again.log 2>&1 || break
        sleep 0.2
    done
    ! grep -qi 'failed' again.log || { cat again.log; fail 'the target is back, the data is not'; }
    kill -KILL "$target"
    ended "$target" 60
    background wait.log qemu-io -f raw -c 'read -P 7 0 1M' "$uri"
    eventually 30 waits_for_an_answer
    kill -TERM "$attached"
    ended "$attached" 30
    [ ! -e "$socket" ] || fail 'the socket is still there'
    ended "$pid" 30
}

# A target that neither answers nor hangs up cannot keep a device from being detached.
test_crash_silent_target_under_nbd() {
    serve --namespace mem:64MiB
    attach --lanes 2
    stopped "$target"
    background wait.log qemu-io -f raw -c 'read 0 1M' "$uri"
    local waits=$pid
    eventually 30 waits_for_an_answer
    alive "$waits" || { cat wait.log; fail 'the request was answered by nobody'; }
    kill -TERM "$attached"
    ended "$attached" 30
    ended "$waits" 30
    [ ! -e "$socket" ] || fail 'the socket is still there'
    kill -CONT "$target"
}
