# shellcheck shell=bash
# Pages of the guide whose commands run as they stand: the first hour, migration, backup. That every command of a page
# is known to the program is a test of its own (crates/cli/src/args/documents_tests.rs).

# documents_machine: a network, a home and a path of the test's own, in which $inside runs a command
documents_machine() {
    [ "$(id -u)" = 0 ] || skip 'network namespaces need root'
    local network=rt-documents-$$
    ip netns add "$network" 2>/dev/null || skip 'no network namespaces here'
    # shellcheck disable=SC2064
    trap "documents_gone $network" EXIT
    ip -n "$network" link set lo up
    mkdir home bin
    ln -s "$ROADTRAIN" bin/roadtrain
    inside=(nsenter --net="/run/netns/$network" env "HOME=$work/home" "PATH=$work/bin:$PATH" 'no_proxy=*')
}

# What a page has started by itself ends.
documents_gone() {
    local served
    for served in $(cat "$work"/home/*/serve.pid 2>/dev/null); do
        ! is_own "$served" || end_all "$served"
    done
    ip netns del "$1"
}

# documents_blocks PAGE WORDS: its blocks ```WORDS, in order, as blocks/NN.sh
documents_blocks() {
    rm -rf blocks
    mkdir blocks
    awk -v words="$2" '/^```/ {inside = !inside; here = inside && substr($0, 4) == words; n += here; next}
        here {print >sprintf("blocks/%02d.sh", n)}' "$top/docs/guide/$1"
    [ -e blocks/01.sh ] || fail "$1 has no block $2"
}

# documents_run FILE: runs a page's commands at home, which end in time; their output is in said.log
documents_run() {
    local commands
    commands=$(realpath "$1")
    (cd home && exec "${inside[@]}" timeout 200 bash -e "$commands") >said.log 2>&1 </dev/null ||
        fail "status $? of: $(cat "$1" said.log)"
}

# documents_said PATTERN...: the last block has printed a line for each
documents_said() {
    local pattern
    for pattern; do grep -qE "$pattern" said.log || fail "no '$pattern' in: $(cat said.log)"; done
}

# documents_serve [OPTIONS]: a target in that network; leaves its process in $target
documents_serve() {
    background target.log "${inside[@]}" roadtrain serve "$@"
    target=$pid
    until_line target.log '^ready' "$target" 60
}

documents_stop() {
    kill -TERM "$target"
    ended "$target" 30
}

# first_hour_shows FILE: what the page says of a block's output. Counts what it has checked.
first_hour_shows() {
    local rc=0
    case $(cat "$1") in
    *'roadtrain discover'*) documents_said '^ready|made' 'nvme subsystem .*nqn.2025-01.io.example:disk' ;;
    *'kill -9'*)
        documents_said 'first-hour .*reconnecting' 'target0 .*gone'
        "${inside[@]}" roadtrain status >/dev/null 2>&1 || rc=$?
        [ $rc != 0 ] || fail 'status reports no problem'
        ;;
    *'roadtrain status first-hour'*) documents_said '^ready nbd\+unix:' 'connected for' ;;
    */metrics*) documents_said 'written_bytes_total\{.*nsid="1"\} [1-9]' '^ok$' ;;
    *'volume snapshot'*) documents_said 'namespace 2 of .*added' 'vols/before +snapshot' ;;
    *) return 0 ;;
    esac
    checked=$((checked + 1))
}

test_documents_first_hour() {
    local block checked=0 inside served
    documents_machine
    documents_blocks first-hour.md sh
    for block in blocks/*.sh; do
        echo "== $block"
        documents_run "$block"
        cat said.log
        first_hour_shows "$block"
        [ "$block" != blocks/01.sh ] || served=$(cat home/roadtrain-first-hour/serve.pid)
    done
    [ $checked = 5 ] || fail "the page has $checked of 5 outputs"
    # Nothing is left of it: the killed target, the second one, attachments, files.
    ended "$served" 10
    [ -z "$(ls home)" ] || fail "left: $(ls home)"
    "$ROADTRAIN" list --json >list.json && holds list.json '. == []'
}

# The sample of nvmetcli, by the page's program, served at files in place of its disks.
test_documents_migrate() {
    local inside disk=nqn.2025-01.io.example:disk host=nqn.2025-01.io.example:host7
    documents_machine
    documents_blocks migrate.md 'sh migrate'
    documents_run blocks/01.sh
    truncate -s 32M a.img b.img
    sed "s|/srv/a.img|$work/a.img|; s|\"block\"|\"file\"|; s|/dev/vdb|$work/b.img|" home/roadtrain-migrate/serve.toml >serve.toml
    documents_serve --config serve.toml
    for port in 4420 4421; do
        "${inside[@]}" roadtrain list -a 127.0.0.1 -s $port -q $host --json >list.json
        holds list.json '[.[] | [.nqn, .serial, .model, .nsid, .capacity_bytes]] ==
            [[$n, "123456789abcdef", "Linux", 1, 33554432], [$n, "123456789abcdef", "Linux", 2, 33554432]]' --arg n $disk
        holds list.json '.[0].uuid == "d592cdf3-5d1c-44e0-8412-3fcf7d99df27" and .[1].uuid == "3b7e1c52-0e5b-4a43-9d0f-5f3f0a5d6f11" and
            .[1].nguid == "ef90689c-6c46-d44c-89c1-4067801309a8" and .[1].block_bytes == 4096'
    done
    # Who was not allowed is not.
    refused 'host' "${inside[@]}" roadtrain identify -a 127.0.0.1 -n $disk -q nqn.2025-01.io.example:other
    documents_stop
}

# spdk_saved IMAGE: what SPDK's save_config writes, for a file and a memory device in two subsystems
spdk_saved() {
    cat <<JSON
{"subsystems": [
  {"subsystem": "keyring", "config": []},
  {"subsystem": "iobuf", "config": [{"method": "iobuf_set_options", "params": {"small_pool_count": 8192,
    "large_pool_count": 1024, "small_bufsize": 8192, "large_bufsize": 135168}}]},
  {"subsystem": "sock", "config": [{"method": "sock_set_default_impl", "params": {"impl_name": "posix"}}]},
  {"subsystem": "vmd", "config": []},
  {"subsystem": "accel", "config": [{"method": "accel_set_options", "params": {"small_cache_size": 128,
    "large_cache_size": 16, "task_count": 2048, "sequence_count": 2048, "buf_count": 2048}}]},
  {"subsystem": "bdev", "config": [
    {"method": "bdev_set_options", "params": {"bdev_io_pool_size": 65535, "bdev_io_cache_size": 256,
      "bdev_auto_examine": true, "iobuf_small_cache_size": 128, "iobuf_large_cache_size": 16}},
    {"method": "bdev_raid_set_options", "params": {"process_window_size_kb": 1024}},
    {"method": "bdev_nvme_set_hotplug", "params": {"period_us": 100000, "enable": false}},
    {"method": "bdev_malloc_create", "params": {"name": "Malloc0", "num_blocks": 32768, "block_size": 512,
      "physical_block_size": 512, "uuid": "8e2a1f64-6a6b-4a4c-9a54-0d1c2b3a4f5e", "optimal_io_boundary": 0,
      "md_size": 0, "dif_type": 0, "dif_is_head_of_md": false, "dif_pi_format": 0}},
    {"method": "bdev_aio_create", "params": {"block_size": 4096, "name": "aio0", "filename": "$1",
      "readonly": false, "fallocate": false, "uuid": "c0a5f6d2-31f7-4a0e-8d0b-7d0a6a3e9b11"}},
    {"method": "bdev_wait_for_examine"}]},
  {"subsystem": "scheduler", "config": [{"method": "framework_set_scheduler", "params": {"name": "static"}}]},
  {"subsystem": "nvmf", "config": [
    {"method": "nvmf_set_config", "params": {"discovery_filter": "match_any",
      "admin_cmd_passthru": {"identify_ctrlr": false}}},
    {"method": "nvmf_set_max_subsystems", "params": {"max_subsystems": 1024}},
    {"method": "nvmf_set_crdt", "params": {"crdt1": 0, "crdt2": 0, "crdt3": 0}},
    {"method": "nvmf_create_transport", "params": {"trtype": "TCP", "max_queue_depth": 128,
      "max_io_qpairs_per_ctrlr": 127, "in_capsule_data_size": 4096, "max_io_size": 131072, "io_unit_size": 131072,
      "max_aq_depth": 128, "num_shared_buffers": 511, "buf_cache_size": 4294967295, "dif_insert_or_strip": false,
      "zcopy": false, "c2h_success": true, "sock_priority": 0, "abort_timeout_sec": 1, "ack_timeout": 0,
      "data_wr_pool_size": 0}},
    {"method": "nvmf_create_subsystem", "params": {"nqn": "nqn.2016-06.io.spdk:one", "allow_any_host": true,
      "serial_number": "SPDK00000000000001", "model_number": "SPDK bdev Controller", "max_namespaces": 32,
      "min_cntlid": 1, "max_cntlid": 65519, "ana_reporting": false}},
    {"method": "nvmf_subsystem_add_ns", "params": {"nqn": "nqn.2016-06.io.spdk:one", "namespace": {"nsid": 1,
      "bdev_name": "aio0", "nguid": "C0A5F6D231F74A0E8D0B7D0A6A3E9B11",
      "uuid": "c0a5f6d2-31f7-4a0e-8d0b-7d0a6a3e9b11", "no_auto_visible": false}}},
    {"method": "nvmf_subsystem_add_listener", "params": {"nqn": "nqn.2016-06.io.spdk:one", "listen_address":
      {"trtype": "TCP", "adrfam": "IPv4", "traddr": "192.0.2.7", "trsvcid": "4420"}, "secure_channel": false}},
    {"method": "nvmf_create_subsystem", "params": {"nqn": "nqn.2016-06.io.spdk:two", "allow_any_host": false,
      "serial_number": "SPDK00000000000002", "model_number": "SPDK bdev Controller", "max_namespaces": 32,
      "min_cntlid": 1, "max_cntlid": 65519, "ana_reporting": false}},
    {"method": "nvmf_subsystem_add_host", "params": {"nqn": "nqn.2016-06.io.spdk:two", "host": "nqn.2025-01.io.example:host7"}},
    {"method": "nvmf_subsystem_add_ns", "params": {"nqn": "nqn.2016-06.io.spdk:two", "namespace": {"nsid": 5,
      "bdev_name": "Malloc0", "nguid": "8E2A1F646A6B4A4C9A540D1C2B3A4F5E",
      "uuid": "8e2a1f64-6a6b-4a4c-9a54-0d1c2b3a4f5e", "no_auto_visible": false}}},
    {"method": "nvmf_subsystem_add_listener", "params": {"nqn": "nqn.2016-06.io.spdk:two", "listen_address":
      {"trtype": "TCP", "adrfam": "IPv4", "traddr": "192.0.2.7", "trsvcid": "4420"}, "secure_channel": false}}]},
  {"subsystem": "iscsi", "config": [{"method": "iscsi_set_options", "params": {"node_base": "iqn.2016-06.io.spdk",
    "max_sessions": 128}}]}
]}
JSON
}

# The page's commands with a configuration of SPDK, but for SPDK's own.
test_documents_migrate_spdk() {
    local inside serve
    documents_machine
    "${inside[@]}" ip addr add 192.0.2.7/32 dev lo
    mkdir images home/roadtrain
    seq 600000 >images/a.img
    truncate -s 4M images/a.img
    spdk_saved "$work/images/a.img" >home/spdk.json
    awk '/^## / {here = /From SPDK/} here && sub(/^    /, "")' "$top/docs/guide/migrate.md" | sed "s|/srv/images|$work/images|" >page.sh
    serve=$(grep '^roadtrain serve' page.sh)
    background target.log "${inside[@]}" bash -c "exec $serve"
    target=$pid
    until_line target.log '^ready' "$target" 60
    grep -v '^spdk-rpc\|^roadtrain serve' page.sh >commands.sh
    documents_run commands.sh
    documents_said '^nqn = "nqn.2016-06.io.spdk:one"'
    "${inside[@]}" roadtrain list -a 192.0.2.7 -q nqn.2025-01.io.example:host7 --json >list.json
    holds list.json '[.[] | [.nqn, .serial, .model, .nsid, .capacity_bytes, .block_bytes, .uuid]] == [
        ["nqn.2016-06.io.spdk:one", "SPDK00000000000001", "SPDK bdev Controller", 1, 4194304, 4096, "c0a5f6d2-31f7-4a0e-8d0b-7d0a6a3e9b11"],
        ["nqn.2016-06.io.spdk:two", "SPDK00000000000002", "SPDK bdev Controller", 5, 16777216, 512, "8e2a1f64-6a6b-4a4c-9a54-0d1c2b3a4f5e"]]'
    holds list.json '[.[].nguid] == ["c0a5f6d2-31f7-4a0e-8d0b-7d0a6a3e9b11", "8e2a1f64-6a6b-4a4c-9a54-0d1c2b3a4f5e"]'
    refused 'host' "${inside[@]}" roadtrain identify -a 192.0.2.7 -n nqn.2016-06.io.spdk:two -q nqn.2025-01.io.example:other
    documents_stop
}

# documents_disk WORD FILE: copies the blocks of $disk that a host reads into the file, or writes them from it
documents_disk() {
    local files=("$2" "nbd+unix:///?socket=$work/disk.sock")
    [ "$1" = write ] || files=("${files[1]}" "$2")
    "${inside[@]}" roadtrain attach -a 127.0.0.1 -n "$nqn" --nsid "$nsid" --as "nbd:unix:$work/disk.sock" --id disk --background
    nbdcopy "${files[@]}"
    "${inside[@]}" roadtrain detach disk
} >>disk.log 2>&1

# documents_disks WORD: all disks of the backup test, as disk.N of that word
documents_disks() {
    local nqn nsid n=0
    while read -r nqn nsid; do
        documents_disk "$1" "$work/disk.$((n += 1)).$1"
    done <<<"$disks"
}

# The reservations of $resv, without the controller that the host has just now.
documents_reservations() { "${inside[@]}" roadtrain resv report "${resv[@]}" | sed '/^host /,$ s/ *[0-9-]*$//'; }

# A target with a file of its options, a file and a volume of its state, and a persistent reservation: saved, lost, restored.
test_documents_backup() {
    local inside n resv=(-a 127.0.0.1 -n nqn.2025-01.io.example:disk --namespace-id 1) file options identity
    local disks='nqn.2025-01.io.example:disk 1
nqn.2025-01.io.example:state 1
nqn.2025-01.io.example:state 2'
    documents_machine
    mkdir home/roadtrain
    file="file:$work/home/roadtrain/disk.img,size=8MiB,lba=4096"
    options=(-a 127.0.0.1 -n nqn.2025-01.io.example:disk --serial S7 --lvstore "vols=$work/home/roadtrain/vols,size=1GiB"
        --state "$work/home/roadtrain/state.toml")
    documents_serve "${options[@]}" --namespace "$file"
    "${inside[@]}" roadtrain ctl volume create vols/disk 8MiB --thin
    "${inside[@]}" roadtrain ctl subsystem add -n nqn.2025-01.io.example:state \
        --namespace "file:$work/home/roadtrain/state.img,size=8MiB" --namespace device:vols/disk
    for n in 1 2 3; do
        seq "$((n * 100000))" "$((n * 100000 + 90000))" >disk.$n.write
        truncate -s 8M disk.$n.write
    done
    documents_disks write
    "${inside[@]}" roadtrain resv register "${resv[@]}" --nrkey 7 --cptpl 3
    "${inside[@]}" roadtrain resv acquire "${resv[@]}" --crkey 7 --rtype 1
    documents_reservations >reservations

    # The page's commands for volumes, with no host connected.
    awk '/^## / {here = /^## Volumes/} here && sub(/^    /, "")' "$top/docs/guide/backup.md" >volumes.sh
    documents_run volumes.sh
    documents_said 'nqn.2025-01.io.example:backup: added'
    documents_blocks backup.md 'sh save' && documents_run blocks/01.sh
    documents_stop
    documents_blocks backup.md 'sh copy' && documents_run blocks/01.sh

    rm -r home/roadtrain
    documents_blocks backup.md 'sh restore' && documents_run blocks/01.sh
    documents_blocks backup.md 'sh compare'
    # As it stands the file is a copy, which has an identity of its own.
    documents_serve "${options[@]}" --namespace "$file"
    ! (documents_run blocks/01.sh) >compare.out || fail 'a copy has the identity of the original'
    [ "$(grep -c '^[<>] *"\(nguid\|uuid\)"' said.log)" = 4 ] || fail "not one disk: $(cat said.log)"
    documents_stop
    identity=$(jq -r '.[] | select(.nqn == "nqn.2025-01.io.example:disk") | "uuid=\(.uuid),nguid=\(.nguid)"' home/roadtrain/disks.json)
    documents_serve "${options[@]}" --namespace "$file,$identity"
    documents_run blocks/01.sh
    documents_disks read
    for n in 1 2 3; do cmp disk.$n.write disk.$n.read; done
    documents_reservations | diff reservations -
    "${inside[@]}" roadtrain identify -a 127.0.0.1 -n nqn.2025-01.io.example:disk >identify
    grep -q '^serial  *S7$' identify || fail "$(cat identify)"
    documents_stop
}

# The page's commands for increments by a dirty bitmap.
test_documents_increments() {
    local inside write
    documents_machine
    documents_serve -a 127.0.0.1 -n nqn.2025-01.io.example:disk --namespace "file:$work/disk.img,size=64MiB"
    documents_blocks backup.md 'sh attach' && documents_run blocks/01.sh
    write=("${inside[@]}" qemu-io -f raw -c 'write -P 1 1M 3M' -c flush "nbd+unix:///?socket=$work/home/disk.sock")
    "${write[@]}" >write.log
    documents_blocks backup.md 'sh full' && documents_run blocks/01.sh
    documents_said '^[0-9]+ full$' 'the backup has finished'
    write=("${write[@]/-P 1 1M 3M/-P 2 2M 4M}")
    "${write[@]}" -c 'write -z 1M 64k' >write.log
    documents_blocks backup.md 'sh increment' && documents_run blocks/01.sh
    documents_said '^[0-9]+ increment$' 'the backup has finished'
    documents_blocks backup.md 'sh chain' && documents_run blocks/01.sh
    "${inside[@]}" roadtrain detach nbd0
    documents_stop
    cmp home/restored.img disk.img
    qemu-img compare -q -f qcow2 -F raw home/increment-1.qcow2 disk.img
}
