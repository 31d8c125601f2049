# shellcheck shell=bash
# Images that `rbd encryption format` has encrypted: served with their passphrase, and only so.

# shellcheck source=tests/lib/rpc.sh
. "$top/tests/lib/rpc.sh"
# shellcheck source=tests/lib/ceph.sh
. "$top/tests/lib/ceph.sh"
in_network=()
# shellcheck source=tests/lib/gateways.sh
. "$top/tests/lib/gateways.sh"

secret='a passphrase of tests'
thorough+=(encrypted_standby_takes_over encrypted_image_by_the_guide)

# encrypted_image FORMAT MIB: the image rbd/disk with that many MiB of data, its passphrase in the file `key`
encrypted_image() {
    local header=16
    [ "$1" = luks2 ] || header=4
    (umask 077 && printf '%s\n' "$secret" >key)
    rbd_tool create rbd/disk --size $((header + $2))M
    rbd_tool encryption format rbd/disk "$1" key
    opened="$image,passphrase-file=$work/key"
}

# serves_again: the target ends, and serves the image again
serves_again() {
    "$ROADTRAIN" detach --all >detach.log
    kill -TERM "$target"
    ended "$target" 30
    serve --namespace "rbd:rbd/disk,$opened"
}

# no_secret FILE...: none has the passphrase
no_secret() { ! grep -lF "$secret" "$@" || fail 'the passphrase is shown'; }

# Blocks of any size are right, unwritten and discarded ones are zeroes, and the cluster has none of the text.
test_encrypted_image_is_served() {
    ceph_lab
    encrypted_image luks2 64
    serve --namespace "rbd:rbd/disk,$opened"
    attach
    [ "$(nbdinfo --size "$uri")" = 67108864 ] || fail "a size of $(nbdinfo --size "$uri")"
    # Blocks of the image have 4096 bytes, those of the namespace 512. What was not written of an object is zeroes.
    qemu-io -f raw -c 'write -P 7 1M 512' -c 'read -P 7 1M 512' -c 'read -P 0 0 1M' -c 'read -P 0 1049088 3144192' \
        -c 'read -P 0 4k 4k' -c 'read -P 0 1020k 512' -c 'read -P 0 512k 64k' \
        -c 'read -P 0 1049088 3584' -c 'read -P 0 1052672 4k' -c 'read -P 0 8M 4M' "$uri" >io.log || fail "$(cat io.log)"
    ! grep -E 'failed|mismatch' io.log || fail 'other data'
    # Nor does a part of a block bring up other bytes of it.
    qemu-io -f raw -c 'write -P 8 512k 512' -c 'read -P 8 512k 512' -c 'read -P 0 524800 3584' -c 'read -P 0 508k 4k' \
        "$uri" >io.log || fail "$(cat io.log)"
    qemu-io -f raw -c 'write -P 1 16M 9M' -c 'discard 16M 4M' -c 'discard 20992k 64k' -c 'write -z 22M 1M' \
        -c 'write -z -u 23M 512' -c 'write -z -u 24M 1M' -c 'read -P 0 16M 4M' -c 'read -P 0 20992k 64k' \
        -c 'read -P 0 20996k 4k' -c 'read -P 0 24580k 4k' -c 'read -P 0 22532k 512' \
        -c 'read -P 1 20M 512k' -c 'read -P 1 21056k 960k' -c 'read -P 0 22M 1M' -c 'read -P 0 23M 512' \
        -c 'read -P 1 24118272 1047552' -c 'read -P 0 24M 1M' "$uri" >io.log || fail "$(cat io.log)"
    ! grep -E 'failed|mismatch' io.log || fail 'other data'
    fio --name=verify --ioengine=nbd --uri="$uri" --rw=randwrite --bsrange=512-64k --blockalign=512 --offset=32M \
        --size=8M --io_size=16M --iodepth=16 --verify=crc32c --verify_fatal=1 --end_fsync=1 --eta=never --output=fio.log
    fio --name=neighbours --ioengine=nbd --uri="$uri" --rw=randwrite --bs=512 --offset=40M --size=64k --io_size=1M \
        --iodepth=16 --verify=crc32c --verify_fatal=1 --eta=never --output=fio.log
    # All is allocated: librbd reports extents of the image as it is stored.
    nbdinfo --map --json "$uri" | jq -e 'map(.type) | unique == [0]' >map.log || fail 'it has holes'
    head -c 4M <(yes 'plain text of roadtrain') >plain
    nbdcopy "$uri" before.img
    dd if=plain of=before.img bs=1M seek=48 conv=notrunc status=none
    nbdcopy before.img "$uri"
    serves_again
    attach
    nbdcopy "$uri" after.img
    cmp before.img after.img || fail 'other data after a restart'
    rbd_tool export rbd/disk stored.img >export.log 2>&1
    ! grep -qaF 'plain text of roadtrain' stored.img || fail 'plain text in the cluster'
    no_secret target.log attach.log stored.img
    # Without the passphrase it is what the cluster has, and other blocks to hosts.
    local first
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" --json >identify.json
    first=$(jq -r '[.. | .nguid? // empty][0]' identify.json)
    opened=$image serves_again
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" --json >identify.json
    [ "$(jq -r '[.. | .nguid? // empty][0]' identify.json)" != "$first" ] || fail 'ciphertext has the identity of plain text'
}

# Another program decrypts what the gateway has written, and the other way round; snapshots and clones have the same
# passphrase.
thorough+=(encrypted_image_has_snapshots)
test_encrypted_image_has_snapshots() {
    ceph_lab
    encrypted_image luks1 32
    serve --namespace "rbd:rbd/disk,$opened"
    attach
    qemu-io -f raw -c 'write -P 1 0 8M' -c 'write -P 2 20M 4k' "$uri" >io.log
    # Sectors of 512 bytes: those that were not written are zeroes.
    qemu-io -f raw -c 'write -P 6 30M 512' -c 'read -P 6 30M 512' -c 'read -P 0 31457792 512' -c 'read -P 0 31456768 512' \
        -c 'read -P 0 29M 512' -c 'read -P 0 28M 2M' "$uri" >io.log || fail "$(cat io.log)"
    controls() { env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl namespace "$@" >ctl.out; }
    controls snapshot create --nsid 1 one
    qemu-io -f raw -c 'write -P 3 0 1M' "$uri" >io.log
    # librbd names ranges of the image as it is stored, so all of it counts as different.
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl snapshot diff --nsid 1 one --json >diff.json
    holds diff.json '.ranges == [{offset: 0, bytes: 33554432, kind: "data"}]'
    controls snapshot protect --nsid 1 one
    controls snapshot clone --nsid 1 one rbd/copy
    controls add "rbd:rbd/disk@one,$opened"
    controls add "rbd:rbd/copy,$opened"
    "$ROADTRAIN" detach --all >detach.log
    attach --nsid 2
    qemu-io -r -f raw -c 'read -P 1 0 8M' -c 'read -P 2 20M 4k' -c 'read -P 0 8M 12M' "$uri" >io.log || fail "$(cat io.log)"
    "$ROADTRAIN" detach --all >detach.log
    attach --nsid 3
    [ "$(nbdinfo --size "$uri")" = 33554432 ] || fail "a clone of $(nbdinfo --size "$uri") bytes"
    qemu-io -f raw -c 'read -P 1 0 8M' -c 'write -P 4 4M 512' -c 'read -P 4 4M 512' -c 'read -P 1 4194816 512' \
        -c 'read -P 1 0 4M' -c 'read -P 2 20M 4k' "$uri" >io.log || fail "$(cat io.log)"
    "$ROADTRAIN" detach --all >detach.log
    controls snapshot rollback --nsid 1 one
    attach
    qemu-io -f raw -c 'read -P 1 0 8M' "$uri" >io.log || fail "$(cat io.log)"
    # It grows as any other image. What is shown has its size without the header.
    rbd_tool resize rbd/disk --size 52M >resize.log
    eventually 30 prints '.[0].devices[0].capacity_bytes == 50331648' "$ROADTRAIN" status --json
    qemu-io -f raw -c 'write -P 5 47M 1M' -c 'read -P 5 47M 1M' -c 'read -P 0 40M 7M' "$uri" >io.log || fail "$(cat io.log)"
    nbdcopy "$uri" served.img
    "$ROADTRAIN" detach --all >detach.log
    kill -TERM "$target"
    ended "$target" 30
    rbd_tool export rbd/disk stored.img >export.log 2>&1
    printf %s "$secret" >key.qemu
    qemu-io -r --object secret,id=key,file=key.qemu,format=raw --image-opts \
        'driver=luks,key-secret=key,file.driver=file,file.filename=stored.img' -c 'read -P 1 0 8M' -c 'read -P 2 20M 4k' \
        -c 'read -P 5 47M 1M' >io.log 2>&1 || fail "$(cat io.log)"
}

# A wrong passphrase, and a file or image that is none, are refused with what to do, and the passphrase is not shown.
thorough+=(encrypted_image_needs_its_passphrase)
test_encrypted_image_needs_its_passphrase() {
    ceph_lab
    encrypted_image luks1 16
    rbd_tool create rbd/plain --size 32M
    (umask 077 && echo 'another passphrase' >wrong)
    (umask 022 && cp key open && chmod 644 open)
    refuses() {
        local rc=0
        "$ROADTRAIN" serve -a 127.0.0.1 -s "$(free_port)" -n nqn.2026-11.test:e2e --namespace "$2" >refused.log 2>&1 || rc=$?
        [ $rc = 1 ] && grep -qF -- "$1" refused.log || { cat refused.log; fail "status $rc for $2"; }
        no_secret refused.log
        ! grep -q 'another passphrase' refused.log || fail 'the wrong passphrase is shown'
    }
    refuses "rbd:rbd/disk: passphrase-file=wrong: this passphrase does not open it" \
        "rbd:rbd/disk,$image,passphrase-file=wrong"
    refuses "passphrase-file=none: cannot read it: No such file" "rbd:rbd/disk,$image,passphrase-file=none"
    refuses "other users can read or change it: \`chmod 600 open\`" "rbd:rbd/disk,$image,passphrase-file=open"
    refuses 'it is not encrypted by `rbd encryption format`' "rbd:rbd/plain,$image,passphrase-file=key"
    refuses 'passphrase-key=roadtrain-none: cannot read this key of the kernel' \
        "rbd:rbd/disk,$image,passphrase-key=roadtrain-none"
}

# A device by RPC, by `ctl`, and in a subsystem of the state: state and saved configuration name file and key, never what
# they have.
thorough+=(encrypted_image_by_rpc)
test_encrypted_image_by_rpc() {
    ceph_lab
    local a=nqn.2026-11.test:rbd b=nqn.2026-11.test:other
    encrypted_image luks1 16
    mkdir -p files
    cp -p key files/key
    managed --file-root "$ceph"
    port=$(free_port)
    r bdev_rbd_register_cluster "{\"name\": \"lab\", \"user_id\": \"tenant\", \"config_file\": \"$ceph/ceph.conf\"}"
    local disk='"pool_name": "rbd", "rbd_name": "disk", "block_size": 4096, "cluster_name": "lab", "name": "d"'
    wrong -1 'Operation not permitted' bdev_rbd_create "{$disk, \"passphrase_file\": \"$work/key\"}"
    r bdev_rbd_create "{$disk, \"passphrase_file\": \"$work/files/key\"}" && is '. == "d"'
    r bdev_get_bdevs '{"name": "d"}' && is '.[0].num_blocks == 4096'
    r bdev_rbd_resize '{"name": "d", "new_size": 24}'
    r bdev_get_bdevs '{"name": "d"}' && is '.[0].num_blocks == 6144'
    [ "$(rbd_tool info rbd/disk --format json | jq .size)" = $((28 << 20)) ] || fail "$(rbd_tool info rbd/disk)"
    r nvmf_create_subsystem "{\"nqn\": \"$a\", \"allow_any_host\": true}"
    r nvmf_subsystem_add_ns "{\"nqn\": \"$a\", \"namespace\": {\"bdev_name\": \"d\"}}"
    r nvmf_subsystem_add_listener "{\"nqn\": \"$a\", \"listen_address\": {\"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$port\"}}"
    "$ROADTRAIN" bench -a 127.0.0.1 -s "$port" -n "$a" --rw randrw --bs 4k --depth 16 --seconds 1 --verify --json >bench.json
    holds bench.json '.errors == 0 and .iops > 0'
    r framework_get_config '{"name": "bdev"}' && is '[.. | .passphrase_file? // empty] == [$key]' --arg key "$work/files/key"
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl config save -o saved.toml >save.log
    grep -qF "passphrase_file = \"$work/files/key\"" saved.toml || fail "$(cat saved.toml)"
    no_secret r.json state.toml saved.toml target.log
    kill -TERM "$target" && ended "$target" 30
    managed --file-root "$ceph"
    r bdev_get_bdevs '{"name": "d"}' && is '.[0].num_blocks == 6144'
    r nvmf_subsystem_remove_ns "{\"nqn\": \"$a\", \"nsid\": 1}"
    r bdev_rbd_delete '{"name": "d"}'
    "$ROADTRAIN" ctl --rpc "$rpc" device add d rbd:rbd/disk,lba=4096,passphrase-file=files/key --cluster lab >add.log
    r bdev_get_bdevs '{"name": "d"}' && is '.[0].num_blocks == 6144'
    r bdev_rbd_delete '{"name": "d"}'
    r nvmf_create_subsystem "{\"nqn\": \"$b\", \"allow_any_host\": true}"
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl namespace add -n $b "rbd:rbd/disk,$image,passphrase-file=files/key" >add.log
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl config save -o saved.toml >save.log
    grep -qF "passphrase_file = \"$work/files/key\"" saved.toml || fail "$(cat saved.toml)"
    no_secret state.toml saved.toml target.log
}

# The passphrase of a key of the kernel, without a file.
thorough+=(encrypted_image_by_key_of_the_kernel)
test_encrypted_image_by_key_of_the_kernel() {
    ceph_lab
    encrypted_image luks1 16
    local name=roadtrain-test-$$
    command -v python3 >/dev/null || skip 'no python3'
    # In the keyring of the user, for ten minutes.
    python3 - "$name" key >key.log 2>&1 <<'PY' || skip "no keyring of the kernel: $(cat key.log)"
import ctypes, sys, platform
add_key = {"x86_64": 248, "aarch64": 217}[platform.machine()]
payload = open(sys.argv[2], "rb").read().rstrip(b"\n")
libc = ctypes.CDLL(None, use_errno=True)
serial = libc.syscall(add_key, b"user", sys.argv[1].encode(), payload, len(payload), -4)
if serial < 0:
    sys.exit(f"add_key: errno {ctypes.get_errno()}")
keyctl, set_timeout = {"x86_64": 250, "aarch64": 219}[platform.machine()], 15
libc.syscall(keyctl, set_timeout, serial, 600)
PY
    rm key
    serve --namespace "rbd:rbd/disk,$image,passphrase-key=$name"
    attach
    qemu-io -f raw -c 'write -P 1 0 1M' -c 'read -P 1 0 1M' -c 'read -P 0 1M 1M' "$uri" >io.log || fail "$(cat io.log)"
    no_secret target.log
}

# The commands of docs/guide/encryption.md.
test_encrypted_image_by_the_guide() {
    need_own_network
    ceph_lab
    guide_files "$ceph"
    ceph_tool osd pool create disks
    rbd_tool pool init disks
    ceph_tool auth get-or-create client.gate mon 'profile rbd' osd 'profile rbd pool=disks' -o "$work/etc/ceph.client.gate.keyring"
    (umask 077 && echo "$secret" >key)
    local command gateways=() count=0
    awk '/^## / {here = /^## Ceph/} here && sub(/^    /, "") {
            while (sub(/\\$/, "")) {line = $0; getline; sub(/^ +/, ""); $0 = line $0}
            print
        }' "$top/docs/guide/encryption.md" | grep -v '^ready ' | sed "s|/etc/roadtrain/disk.key|$work/key|g" >commands
    while read -r -u 5 command; do
        case $command in
        'roadtrain serve '*) guide_serves "$command" ;;
        *) bash -c "$command" >command.log 2>&1 || fail "$command: $(cat command.log)" ;;
        esac
        count=$((count + 1))
    done 5<commands
    [ $count = 3 ] || fail "$count commands"
    roadtrain identify -a 192.0.2.7 -n nqn.2025-01.io.example:secret --json >identify.json
    holds identify.json '[.. | .capacity_bytes? // empty] | index(10737418240) != null'
    kill -TERM "${gateways[0]}"
    ended "${gateways[0]}" 30
}

# A gateway that stands by has the passphrase, too.
test_encrypted_standby_takes_over() {
    gateways_lab
    rbd_tool rm rbd/disk --no-progress
    encrypted_image luks1 64
    gateway one "rbd:rbd/disk,$opened,standby"
    gateway two "rbd:rbd/disk,$opened,standby"
    [ "$(ana_of one) $(ana_of two)" = 'optimized inaccessible' ] || fail "$(ana_of one) $(ana_of two)"
    host both 192.0.2.3 192.0.2.1
    qemu-io -f raw -c 'write -P 1 0 1M' "$uri" >io.log
    kill -KILL "$gateway_one"
    is_soon two optimized
    qemu-io -f raw -c 'read -P 1 0 1M' -c 'write -P 2 1M 512' "$uri" >io.log || fail "$(cat io.log)"
    gateway one "rbd:rbd/disk,$opened,standby"
    [ "$(ana_of one)" = inaccessible ] || fail 'one has it again'
    kill -TERM "$gateway_two"
    is_soon one optimized
    qemu-io -f raw -c 'read -P 1 0 1M' -c 'read -P 2 1M 512' "$uri" >io.log || fail "$(cat io.log)"
}
