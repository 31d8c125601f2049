# shellcheck shell=bash
# Namespaces that are exports of NBD servers (nbdkit, qemu-nbd): hosts find what they wrote, whatever the servers do.

# needs_kit: nbdkit is there
needs_kit() { command -v nbdkit >/dev/null || skip 'nbdkit is not installed (scripts/setup.sh e2e)'; }

# kit [ARGUMENTS]: a server of nbdkit at kit.sock; leaves its process in $kit
kit() {
    rm -f kit.sock
    background kit.log nbdkit --foreground --exit-with-parent --unix kit.sock "$@"
    kit=$pid
    eventually 20 test -S kit.sock
}

# moves_over_nbd NAME [OPTIONS of fio]: writes and verifies over $uri
moves_over_nbd() {
    fio --name="$1" --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=512-64k --size=16M --iodepth=16 \
        --verify=crc32c --verify_fatal=1 --eta=never --output="fio-$1.log" "${@:2}" || { cat "fio-$1.log"; fail "$1"; }
}

test_nbd_store_memory() {
    needs_kit
    kit --filter=log memory 64M logfile="$work/requests.log"
    serve --cores 0 --namespace nbd:unix:kit.sock
    attach
    nbdinfo --json "$uri" >info.json
    holds info.json '.exports[0] | ."export-size" == 67108864 and ."can_flush" and ."is_read_only" == false'
    make_image disk.raw
    nbdcopy --flush disk.raw "$uri"
    nbdcopy "$uri" back.raw
    cmp disk.raw back.raw
    moves_over_nbd memory --fsync=32
    # Zeroes, discards, forced writes and block status arrive as what they are.
    qemu-io -f raw -c 'write -P 9 0 1M' -c 'write -z 0 64k' -c 'read -P 0 0 64k' -c 'write -z -u 64k 64k' \
        -c 'write -f -P 7 1M 4k' -c 'discard 2M 1M' -c 'read -P 9 128k 64k' "$uri" >io.log
    ! grep -qi 'fail\|error' io.log || fail "$(cat io.log)"
    local what
    for what in 'Zero.* offset=0x0 count=0x10000 trim=0' 'Zero.* count=0x10000 trim=1' \
        'Write.*offset=0x100000 count=0x1000 fua=1' Flush Trim Extents; do
        [ "$what" != Extents ] || nbdinfo --map "$uri" >/dev/null
        grep -qi "$what" requests.log || fail "no $what: $(tail -30 requests.log)"
    done
}

# Errors of the server reach the host as what they are, and the next request is served.
test_nbd_store_errors() {
    needs_kit
    kit --filter=error memory 64M error=ENOSPC error-pwrite-rate=100% error-file="$work/broken"
    serve --namespace nbd:unix:kit.sock
    attach
    qemu-io -f raw -c 'write -P 1 0 4k' "$uri" >io.log 2>&1
    touch broken
    ! qemu-io -f raw -c 'write -P 2 0 4k' "$uri" >io.log 2>&1 || fail "$(cat io.log)"
    grep -q 'No space left' io.log || fail "$(cat io.log)"
    qemu-io -f raw -c 'read -P 1 0 4k' "$uri" >io.log 2>&1 || fail "$(cat io.log)"
    rm broken
    qemu-io -f raw -c 'write -P 2 0 4k' -c 'read -P 2 0 4k' "$uri" >io.log 2>&1 || fail "$(cat io.log)"
    grep -q 'nbd:unix:.*kit.sock: Write .*fails: ENOSPC' target.log || fail "$(cat target.log)"
}

# Late replies, and requests of another size than the host's.
test_nbd_store_delay() {
    needs_kit
    kit --filter=delay --filter=blocksize-policy memory 64M rdelay=2ms wdelay=5ms delay-zero=5ms \
        blocksize-minimum=4096 blocksize-preferred=4096 blocksize-maximum=64k blocksize-error-policy=error
    serve --namespace nbd:unix:kit.sock
    attach
    moves_over_nbd delay --bsrange=4k-256k --io_size=4M
}

# qemu_disk: qemu-nbd with the image disk.qcow2 at kit.sock; leaves its process in $kit
qemu_disk() {
    rm -f kit.sock
    background qemu.log qemu-nbd -f qcow2 -k "$work/kit.sock" -t -e 8 --discard=unmap --cache=writeback disk.qcow2
    kit=$pid
    eventually 20 test -S kit.sock
}

test_nbd_store_qcow2() {
    qemu-img create -q -f qcow2 disk.qcow2 64M
    qemu_disk
    serve --namespace nbd:unix:kit.sock
    attach
    # A new image is a hole, and stays one where nothing is written.
    nbdinfo --map --totals "$uri" >map.txt
    grep -q '100.0%.* 3 ' map.txt || fail "$(cat map.txt)"
    qemu-io -f raw -c 'write -P 5 1M 1M' "$uri" >/dev/null
    nbdinfo --map "$uri" >map.txt
    awk '$3 == 0 { n += $2 } END { exit n != 1048576 }' map.txt || fail "$(cat map.txt)"
    moves_over_nbd qcow2 --fsync=16
    make_image disk.raw
    nbdcopy --flush disk.raw "$uri"
    end_all "$attached" "$target" "$kit"
    qemu-img compare -f raw -F qcow2 disk.raw disk.qcow2
    qemu-img check -q disk.qcow2
}

# A server that is killed and started again while hosts write and verify: no error, no wrong byte.
test_nbd_store_killed_server() {
    needs_kit
    truncate -s 64M disk.img
    kit file disk.img
    serve --cores 0 --namespace nbd:unix:kit.sock,reconnect-delay=50ms
    attach
    local job n
    background fio.log fio --name=killed --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=512-32k --size=32M \
        --iodepth=16 --verify=crc32c --verify_fatal=1 --time_based --runtime=6 --eta=never --output=fio-killed.log
    job=$pid
    for n in 1 2 3; do
        sleep 1.5
        kill -KILL "$kit"
        ended "$kit" 10
        kit file disk.img
    done
    wait "$job" || { cat fio-killed.log fio.log; fail 'a verification failed'; }
    # On a slow machine the load may end before the last server does.
    [ "$(grep -c 'connected again' target.log)" -ge 1 ] || fail "$(cat target.log)"
}

# Unflushed writes that a server may have lost fail the next flush, once.
test_nbd_store_lost_writes() {
    needs_kit
    truncate -s 64M disk.img
    kit file disk.img
    serve --namespace nbd:unix:kit.sock,reconnect-delay=50ms
    attach
    mkfifo commands
    exec 5<>commands
    qemu-io -t writeback -f raw "$uri" <commands >io.log 2>&1 &
    echo $! >>.pids
    echo 'write -P 4 0 4k' >&5
    eventually 20 grep -q 'wrote 4096' io.log
    kill -KILL "$kit"
    ended "$kit" 10
    kit file disk.img
    until_line target.log 'connected again' "$target"
    grep -q 'writes that were not flushed may be lost' target.log || fail "$(cat target.log)"
    # A flush of the same host fails, once.
    ! qemu-io -t writeback -f raw -c flush "$uri" >flush.log 2>&1 || fail 'the loss is not reported'
    qemu-io -t writeback -f raw -c flush "$uri" >flush.log 2>&1 || fail "it is reported twice: $(cat flush.log)"
    qemu-io -t writeback -f raw -c 'write -P 5 0 4k' -c flush -c 'read -P 5 0 4k' "$uri" >flush.log 2>&1 ||
        fail "$(cat flush.log)"
    echo quit >&5
}

# No server: hosts wait, then their requests fail, and the target goes on without it.
test_nbd_store_no_server() {
    needs_kit
    kit memory 64M
    serve --namespace nbd:unix:kit.sock,fast-io-fail-tmo=2,reconnect-delay=50ms
    attach --fast-io-fail-tmo 10
    kill -KILL "$kit"
    ended "$kit" 10
    until_line target.log 'no connection for 2s: operations fail' "$target"
    kit memory 64M
    until_line target.log 'connected again' "$target"
    qemu-io -f raw -c 'write -P 4 0 4k' -c 'read -P 4 0 4k' "$uri" >io.log 2>&1 || fail "$(cat io.log)"
}

test_nbd_store_read_only() {
    needs_kit
    kit --readonly pattern 64M
    serve --namespace nbd:unix:kit.sock
    attach
    nbdinfo --json "$uri" >info.json
    holds info.json '.exports[0].is_read_only'
    nbdcopy "$uri" back.raw
    nbdcopy 'nbd+unix:///?socket=kit.sock' direct.raw
    cmp back.raw direct.raw
}

# A size that is no whole number of blocks, and another one after the server was started again.
test_nbd_store_sizes() {
    needs_kit
    kit memory 67109000
    serve --namespace nbd:unix:kit.sock,reconnect-delay=50ms
    attach
    has_size 67108864
    grep -q 'its last 136 bytes are no whole block' target.log || fail "$(cat target.log)"
    kill -KILL "$kit"
    ended "$kit" 10
    kit memory 96M
    has_size 100663296
    qemu-io -f raw -c 'write -P 4 95M 1M' -c 'read -P 4 95M 1M' "$uri" >io.log || fail "$(cat io.log)"
}

# By commands, in the state, and in the configuration.
test_nbd_store_commands() {
    needs_kit
    kit --filter=exportname memory 64M exportname=disk exportname-strict=true
    local of=(env "ROADTRAIN_RUNTIME_DIR=$work/served" "$ROADTRAIN") disk="nbd:unix:$work/kit.sock,export=disk"
    local file=nqn.2026-11.test:file state=nqn.2026-11.test:state
    # started: a target with target.toml and state.toml
    started() {
        background target.log env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve --config target.toml --state state.toml
        target=$pid
        until_line target.log '^ready' "$target"
    }
    # in_disk COMMAND SUBSYSTEM: qemu-io's command in its first namespace
    in_disk() {
        nqn=$2 attach
        qemu-io -f raw -c "$1" "$uri" >io.log 2>&1 || fail "$(cat io.log)"
        end_all "$attached"
    }
    nqn=$file configure mem:1MiB
    started
    ! "${of[@]}" ctl namespace add -n $file "nbd:unix:$work/kit.sock" >refused.out 2>&1 || fail 'there is no such export'
    grep -q 'refuses GO.*name one with export=NAME' refused.out || fail "$(cat refused.out)"
    "${of[@]}" ctl subsystem add -n $state --namespace "$disk"
    "${of[@]}" status --json >status.json
    grep -q "nbd:unix:$work/kit.sock" status.json || fail "$(cat status.json)"
    grep -q "nbd:unix:$work/kit.sock,export=disk" state.toml || fail "$(cat state.toml)"
    in_disk 'write -P 6 0 4k' $state
    "${of[@]}" ctl config save -o saved.toml
    grep -q 'kind = "nbd"' saved.toml && grep -q 'export = "disk"' saved.toml || fail "$(cat saved.toml)"
    # The state has it, and so has the saved configuration.
    end_all "$target"
    started
    in_disk 'read -P 6 0 4k' $state
    end_all "$target"
    cp saved.toml target.toml
    serve_configured
    in_disk 'read -P 6 0 4k' $state
}

# secured_kit OPTIONS...: nbdkit over TCP with TLS; leaves its port in $kit_port
secured_kit() {
    kit_port=$(free_port)
    background kit.log nbdkit --foreground --exit-with-parent --ipaddr 127.0.0.1 --port "$kit_port" --tls=require "$@" \
        memory 64M
    kit=$pid
    eventually 20 listens_at "$kit_port"
}

listens_at() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

test_nbd_store_tls_psk() {
    needs_kit
    nbd_keys
    secured_kit --tls-psk="$work/psk/keys.psk"
    serve --cores 0 --namespace "nbd:tcp:127.0.0.1:$kit_port,tls-psk=psk/keys.psk,tls-user=alice"
    attach
    moves_over_nbd psk --fsync=32
    end_all "$attached" "$target"
    local refused
    for refused in '' ,tls-psk=wrong/keys.psk ,tls-psk=psk/keys.psk,tls-user=bob ,tls-psk=none.psk; do
        ! "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n "$nqn" --namespace "nbd:tcp:127.0.0.1:$kit_port$refused" \
            >refused.out 2>&1 || fail "serves with '$refused'"
        grep -q "nbd:tcp:127.0.0.1:$kit_port: " refused.out || fail "$(cat refused.out)"
        ! grep -q "$(cut -d: -f2 psk/keys.psk)" refused.out || fail 'a key is in the message'
    done
}

test_nbd_store_tls_certificates() {
    needs_kit
    certificates ours
    certificates others
    secured_kit --tls-certificates="$work/ours" --tls-verify-peer
    serve --namespace "nbd:tcp:127.0.0.1:$kit_port,tls-certificates=ours"
    attach
    moves_over_nbd certificates
    end_all "$attached" "$target"
    serve --namespace "nbd:tcp:localhost:$kit_port,tls-certificates=ours"
    end_all "$target"
    mkdir anyone && cp ours/ca-cert.pem anyone/
    local refused
    # Another authority; no certificate of its own; another name.
    for refused in others anyone ours,tls-hostname=other; do
        ! timeout 30 "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n "$nqn" \
            --namespace "nbd:tcp:127.0.0.1:$kit_port,tls-certificates=$refused" >refused.out 2>&1 || fail "serves: $refused"
        grep -q "nbd:tcp:127.0.0.1:$kit_port: " refused.out || fail "$(cat refused.out)"
    done
}

# Servers that break the protocol: each is named with the field, and the target goes on.
thorough+=(nbd_store_hostile)
test_nbd_store_hostile() {
    local case
    python3 "$here/nbd_hostile.py" --list >cases.txt
    while read -r case expected; do
        rm -f hostile.sock
        background hostile.log python3 "$here/nbd_hostile.py" "$case" hostile.sock
        eventually 20 test -S hostile.sock
        if [[ $case = handshake-* ]]; then
            ! timeout 30 "$ROADTRAIN" serve -a 127.0.0.1 -s "$(free_port)" -n nqn.2026-11.test:e2e \
                --namespace nbd:unix:hostile.sock,connect-timeout=2 >refused.out 2>&1 || fail "serves: $case"
        else
            port='' nqn='' socket=''
            serve --namespace nbd:unix:hostile.sock,reconnect-delay=50ms,fast-io-fail-tmo=2,io-timeout=1
            attach --fast-io-fail-tmo 4
            qemu-io -f raw -c 'read 0 4k' "$uri" >io.log 2>&1 &
            until_line target.log "$expected" "$target"
            alive "$target" || fail "the target has ended: $case"
            end_all "$attached" "$target"
            cp target.log refused.out
        fi
        grep -q -- "$expected" refused.out || fail "$case: no '$expected': $(cat refused.out)"
        end_all "$pid"
    done <cases.txt
}
