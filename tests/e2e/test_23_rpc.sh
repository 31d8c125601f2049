# shellcheck shell=bash
# JSON-RPC: SPDK's own clients as they are, our own, what is no request, and what stays after kill -9.

# shellcheck source=tests/lib/rpc.sh
. "$top/tests/lib/rpc.sh"

# These install Python packages, or take long.
thorough+=(rpc_spdk_clients rpc_spdk_clients_of_26_5 rpc_what_is_saved_is_loaded rpc_spdk_cli rpc_hostile
    rpc_killed_at_every_call rpc_many_clients rpc_thousands_of_namespaces)

# Methods of the first step, one after the other, and what SPDK's save_config and load_config make of them.
test_rpc_spdk_clients() { spdk_clients_do_all 26.9; }

# Those of the release whose methods these are.
test_rpc_spdk_clients_of_26_5() { spdk_clients_do_all 26.5; }

# spdk_clients_do_all VERSION
spdk_clients_do_all() {
    local a=nqn.2026-11.test:rpc b=nqn.2026-11.test:other host=nqn.2026-11.test:host uuid other
    spdk_clients "$1"
    managed
    port=$(free_port) other=$(free_port)
    s spdk_get_version && holds s.json '.fields.major == 26 and (.version | startswith("SPDK v"))'
    s rpc_get_methods && holds s.json 'index("bdev_get_bdevs") and index("nvmf_get_subsystems") and (index("framework_start_init") | not)'
    s framework_get_subsystems && holds s.json '[.[].subsystem] == ["keyring", "bdev", "nvmf"]'
    s framework_get_reactors && holds s.json '.tick_rate == 1000000000 and (.reactors | length) == 1'
    s thread_get_stats && holds s.json '.threads[0].name == "nvmf_tgt_poll_group_000"'
    s thread_get_pollers && holds s.json '.threads[0].active_pollers[0] | .state == "running" and .run_count >= .busy_count'
    s framework_get_scheduler && holds s.json '.scheduler_name == "static"'
    s iobuf_get_stats && holds s.json '.[0].small_pool.retry == 0'
    s framework_wait_init
    s bdev_wait_for_examine
    s bdev_malloc_create 64 512 -b disk -u 11111111-2222-3333-4444-555555555555 && grep -qx disk s.json
    s bdev_malloc_create 8 4096 && grep -qx Malloc0 s.json
    s bdev_null_create nothing 100 512
    truncate -s 32M files/disk.img files/other.img
    s bdev_aio_create "$work/files/disk.img" file 512
    s bdev_uring_create "$work/files/other.img" ring 512
    s bdev_get_bdevs && holds s.json '[.[].name] == ["disk", "Malloc0", "nothing", "file", "ring"] and
        [.[].product_name] == ["Malloc disk", "Malloc disk", "Null disk", "AIO disk", "URING bdev"]'
    s bdev_get_bdevs -b 11111111-2222-3333-4444-555555555555 && holds s.json '.[0] | .name == "disk" and
        .num_blocks == 131072 and .aliases == ["11111111-2222-3333-4444-555555555555"] and .claimed == false'
    s bdev_examine -b disk
    s bdev_get_bdevs -b disk && holds s.json '.[0].preferred_unmap_granularity == 8'
    s bdev_null_resize nothing 200 && s bdev_get_bdevs -b nothing && holds s.json '.[0].num_blocks == 409600'
    s bdev_set_qos_limit disk --rw-ios-per-sec 20000 --w-mbytes-per-sec 100 && s bdev_get_bdevs -b disk &&
        holds s.json '.[0].assigned_rate_limits | .rw_ios_per_sec == 20000 and .w_mbytes_per_sec == 100'
    truncate -s 48M files/disk.img
    s bdev_aio_rescan file && s bdev_get_bdevs -b file && holds s.json '.[0].num_blocks == 98304'
    s nvmf_create_transport -t TCP
    s nvmf_get_transports && holds s.json '.[0].trtype == "TCP"'
    s nvmf_create_subsystem "$a" -s SERIAL -d 'A model' -m 4 -i 100 -I 199
    s nvmf_create_subsystem "$b" -a -r
    s nvmf_subsystem_add_ns "$a" disk -n 3
    s nvmf_subsystem_add_ns "$a" file
    s nvmf_subsystem_add_ns "$b" Malloc0
    s nvmf_subsystem_add_listener "$a" -t tcp -a 127.0.0.1 -s "$port" -f ipv4
    s nvmf_subsystem_add_listener "$b" -t tcp -a 127.0.0.1 -s "$port"
    s nvmf_subsystem_add_listener "$b" -t tcp -a 127.0.0.1 -s "$other"
    s nvmf_subsystem_listener_set_ana_state "$b" -n non_optimized -t tcp -a 127.0.0.1 -s "$other"
    s nvmf_subsystem_get_listeners "$b" && holds s.json '[.[].ana_states[0].ana_state] == ["optimized", "non_optimized"]'
    s nvmf_subsystem_add_host "$a" "$host"
    # A namespace that only one host sees, in a group that has another state at one listener.
    s nvmf_subsystem_add_ns -n 9 -a 5 --no-auto-visible "$b" nothing
    s nvmf_ns_add_host "$b" 9 "$host"
    s nvmf_subsystem_set_ns_ana_group "$b" 9 7
    s nvmf_subsystem_listener_set_ana_state "$b" -n inaccessible -t tcp -a 127.0.0.1 -s "$port" -g 7
    s nvmf_get_subsystems "$b" && holds s.json '.[0].namespaces[1] | .anagrpid == 7 and .hosts == [$host]' --arg host "$host"
    s nvmf_subsystem_get_listeners "$b" && holds s.json '.[0].ana_states == [{ana_group: 1, ana_state: "optimized"},
        {ana_group: 7, ana_state: "inaccessible"}]'
    s nvmf_get_subsystems "$a" && holds s.json '.[0] | .min_cntlid == 100 and .max_cntlid == 199 and .dmrsl == 0'
    s nvmf_get_subsystems && holds s.json '.[0].subtype == "Discovery" and [.[1:][].nqn] == [$b, $a] and
        (.[2] | .serial_number == "SERIAL" and .model_number == "A model" and .max_namespaces == 4 and
        .hosts == [{nqn: $host}] and .allow_any_host == false and [.namespaces[].nsid] == [1, 3] and
        .namespaces[1].bdev_name == "disk" and .namespaces[1].uuid == "11111111-2222-3333-4444-555555555555" and
        .listen_addresses == [{trtype: "TCP", adrfam: "IPv4", traddr: "127.0.0.1", trsvcid: $port}])' \
        --arg a "$a" --arg b "$b" --arg host "$host" --arg port "$port"
    s nvmf_discovery_get_referrals && holds s.json '. == []'
    s nvmf_discovery_add_referral -t tcp -a 192.0.2.1 -f ipv4 -s 8009
    (umask 077 && "$ROADTRAIN" keys dhchap >files/host.key)
    s keyring_file_add_key key "$work/files/host.key"
    s nvmf_subsystem_add_host "$b" "$host" --dhchap-key key
    s nvmf_subsystem_set_keys "$b" "$host" --dhchap-key key --dhchap-ctrlr-key key
    s keyring_get_keys && holds s.json '.[0] | .name == "key" and .removed == false and .refcnt == 2'
    # Hosts see that: each subsystem where it listens, and to whom.
    "$ROADTRAIN" list -a 127.0.0.1 -s "$port" -n "$b" --json >list.json || fail "$(cat list.json)"
    refused 'host' "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$a"
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$a" -q "$host" --json >identify.json
    grep -q 'A model' identify.json || fail "$(cat identify.json)"
    refused '.' "$ROADTRAIN" identify -a 127.0.0.1 -s "$other" -n "$a" -q "$host"
    s nvmf_subsystem_get_controllers "$a" && holds s.json '. == []'
    # A host at work is seen.
    s bdev_enable_histogram Malloc0 --histogram -o write
    background bench.out "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$b" --rw write --bs 4k --size 1MiB \
        --seconds 600 --json
    local bench=$pid
    for _ in $(seq 400); do
        s nvmf_subsystem_get_qpairs "$b"
        [ "$(jq length s.json)" -lt 2 ] || break
        sleep 0.05
    done
    holds s.json '[.[].qid] | index(0) and index(1)'
    holds s.json '.[] | .state == "enabled" and .listen_address.trsvcid == $port and .peer_address.traddr == "127.0.0.1"' --arg port "$port"
    s nvmf_subsystem_get_controllers "$b" && holds s.json '.[0].num_io_qpairs >= 1'
    s nvmf_get_stats && holds s.json '.poll_groups[0].io_qpairs >= 1'
    kill -INT "$bench"
    wait "$bench" || fail "$(cat bench.out)"
    s bdev_get_iostat && holds s.json '.bdevs[] | select(.name == "Malloc0") | .num_write_ops > 0 and .bytes_written == .num_write_ops * 4096'
    s bdev_get_histogram Malloc0 && holds s.json '.tsc_rate == 1000000000 and (.histogram | test("^A*=*$") | not)'
    s bdev_reset_iostat -b Malloc0
    s bdev_get_iostat --names Malloc0 && holds s.json '.bdevs[0] | .num_write_ops == 0 and .max_write_latency_ticks == 0'
    s bdev_get_iostat --names disk && holds s.json '(.bdevs | length) == 1 and .bdevs[0].num_read_ops == 0'
    s save_config && cp s.json saved.json
    # spdk-cli cuts the tree off without a word where a call fails.
    "$spdk/spdk-cli" -s "$rpc" ls >cli.txt 2>&1 || fail "$(cat cli.txt)"
    grep -q 'Malloc0' cli.txt && grep -q "$b" cli.txt && grep -q 'URING\|uring' cli.txt || fail "$(cat cli.txt)"
    # What the process has made is there after kill -9.
    kill -KILL "$target" && ended "$target" 60
    managed
    s save_config && cmp s.json saved.json || fail 'another configuration after kill -9'
    s nvmf_subsystem_remove_host "$a" "$host"
    s nvmf_subsystem_allow_any_host --allow-any-host "$a"
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$a" >identify.txt
    s nvmf_subsystem_allow_any_host --no-allow-any-host "$a"
    s nvmf_subsystem_remove_ns "$a" 3
    s nvmf_subsystem_remove_listener "$b" -t tcp -a 127.0.0.1 -s "$other"
    s nvmf_delete_subsystem "$a"
    s nvmf_delete_subsystem "$b"
    s nvmf_discovery_remove_referral -t tcp -a 192.0.2.1 -f ipv4 -s 8009
    s keyring_file_remove_key key
    s bdev_malloc_delete disk && s bdev_malloc_delete Malloc0 && s bdev_null_delete nothing
    s bdev_aio_delete file && s bdev_uring_delete ring
    s bdev_get_bdevs && holds s.json '. == []'
    # What was saved makes it again, as it is, at a target that has just begun.
    kill -TERM "$target" && ended "$target" 20
    rm state.toml
    managed
    s load_config -j saved.json
    s save_config && cmp s.json saved.json || fail 'load_config does not bring back what save_config has saved'
    # Several requests at once.
    printf '%s\n' bdev_get_bdevs 'nvmf_get_subsystems' | "$spdk/spdk-rpc" -s "$rpc" --server >server.out 2>&1 || fail "$(cat server.out)"
}

# What save_config has saved is loaded as it is by a target that has just begun: devices, stores and volumes in their order,
# and what shows them to hosts. Their order is the same after a restart, too.
test_rpc_what_is_saved_is_loaded() {
    local n=nqn.2026-11.test:rpc version device
    for version in 26.9 26.5; do
        spdk_clients $version
        rm -rf files state.toml
        managed
        port=$(free_port)
        mkdir files/vols
        s bdev_malloc_create 8 512 -b first
        s bdev_lvol_create_lvstore "$work/files/vols" vols
        s bdev_lvol_create -l vols v1 4
        s bdev_malloc_create 8 512 -b late
        s bdev_lvol_create -l vols -t v2 8
        s bdev_null_create void 16 512
        s bdev_set_qos_limit vols/v2 --rw-ios-per-sec 20000
        # The state file has that order, and what is not in memory is there after kill -9.
        s bdev_get_bdevs && jq -c '[.[].name]' s.json >order.txt
        kill -KILL "$target" && ended "$target" 60
        managed
        s bdev_get_bdevs && jq -c '[.[].name]' s.json | cmp - order.txt || fail "another order: $(cat s.json)"
        # A store in memory, as a CSI driver makes it, and a snapshot there.
        s bdev_malloc_create 64 4096 -b base
        s bdev_lvol_create_lvstore base mem
        s bdev_lvol_create -l mem m1 8
        s bdev_lvol_snapshot mem/m1 m2
        s nvmf_create_transport -t TCP
        s nvmf_create_subsystem $n -a -s SERIAL
        for device in vols/v1 mem/m1 void; do s nvmf_subsystem_add_ns $n "$device"; done
        s nvmf_subsystem_add_listener $n -t tcp -a 127.0.0.1 -s "$port"
        s bdev_set_qos_limit mem/m1 --rw-mbytes-per-sec 10
        "$ROADTRAIN" list -a 127.0.0.1 -s "$port" -n $n >hosts.txt
        s save_config && cp s.json saved.json
        kill -KILL "$target" && ended "$target" 60
        rm state.toml
        managed
        s load_config -j saved.json
        s save_config && cmp s.json saved.json || fail "$version: another configuration: $(diff s.json saved.json)"
        "$ROADTRAIN" list -a 127.0.0.1 -s "$port" -n $n | cmp - hosts.txt || fail 'hosts see something else'
        kill -TERM "$target" && ended "$target" 20
    done
}

# spdk-cli makes and removes at its nodes, one command a call.
test_rpc_spdk_cli() {
    local n=nqn.2026-11.test:cli
    spdk_clients
    managed
    port=$(free_port)
    truncate -s 8M files/disk.img
    mkdir files/vols
    cli /bdevs/malloc create 32 512 m
    cli /bdevs/null create void 16 512
    cli /bdevs/aio create disk "$work/files/disk.img" 512
    cli /lvol_stores create mem m
    cli /bdevs/logical_volume create vol 8 mem
    r bdev_get_bdevs && is '[.[].product_name] == ["Malloc disk", "Null disk", "AIO disk", "Logical Volume"] and .[3].aliases == ["mem/vol"]'
    cli /nvmf/transport create tcp
    cli /nvmf/subsystem create $n serial_number=S1 max_namespaces=8 allow_any_host=true
    cli /nvmf/subsystem/$n/listen_addresses create tcp 127.0.0.1 "$port" ipv4
    cli /nvmf/subsystem/$n/namespaces create disk
    cli /nvmf/subsystem/$n/hosts create nqn.2026-11.test:host
    r nvmf_get_subsystems "{\"nqn\": \"$n\"}" && is '.[0] | .serial_number == "S1" and .namespaces[0].bdev_name == "disk" and
        .listen_addresses[0].trsvcid == $p and .hosts == [{nqn: "nqn.2026-11.test:host"}]' --arg p "$port"
    "$ROADTRAIN" list -a 127.0.0.1 -s "$port" -n $n >list.txt
    cli /nvmf/subsystem/$n/hosts delete nqn.2026-11.test:host
    cli /nvmf/subsystem/$n/listen_addresses delete tcp 127.0.0.1 "$port" ipv4
    cli /nvmf/subsystem/$n/namespaces delete 1
    r nvmf_get_subsystems "{\"nqn\": \"$n\"}" && is '.[0] | .namespaces == [] and .listen_addresses == [] and .hosts == []'
    cli /nvmf/subsystem delete $n
    cli /bdevs/logical_volume delete mem/vol
    cli /lvol_stores delete mem
    cli /bdevs/malloc delete m
    cli /bdevs/null delete void
    cli /bdevs/aio delete disk
    r bdev_get_bdevs && is '. == []'
}

# cli PATH COMMAND...: spdk-cli does that, without a word of what it could not. It says nothing of a failure by its status.
cli() {
    "$spdk/spdk-cli" -s "$rpc" "$@" >cli.txt 2>&1 || { cat cli.txt; fail "spdk-cli $*"; }
    ! grep -qiE 'error|invalid|traceback|no such' cli.txt || { cat cli.txt; fail "spdk-cli $*"; }
}

# The fields of errors that clients evaluate.
test_rpc_errors() {
    local n=nqn.2026-11.test:rpc
    managed
    wrong -32601 'Method not found' eat
    wrong -19 'No such device' bdev_get_bdevs '{"name": "none"}'
    wrong -32602 'Invalid parameters' nvmf_subsystem_get_listeners "{\"nqn\": \"$n\"}"
    wrong -32602 'Invalid parameters' spdk_get_version '{"a": 1}'
    wrong -32602 "Invalid transport type 'rdma'" nvmf_create_transport '{"trtype": "rdma"}'
    r nvmf_create_transport '{"trtype": "tcp"}'
    wrong -32603 "Transport type 'TCP' already exists" nvmf_create_transport '{"trtype": "TCP"}'
    wrong -32603 'spdk_json_decode_object failed' bdev_malloc_create '{"num_blocks": 8}'
    wrong -32603 'spdk_json_decode_object failed' bdev_malloc_create '{"num_blocks": 8, "block_size": 512, "color": 1}'
    wrong -22 'Invalid argument' bdev_malloc_create '{"num_blocks": 8, "block_size": 1000}'
    r log_set_flag '{"flag": "nvmf"}' && r log_get_flags && is '. == {nvmf: true, nvmf_tcp: false, rpc: false}'
    r log_clear_flag '{"flag": "all"}' && r log_get_flags && is '.nvmf == false'
    wrong -32602 'invalid log flag' log_clear_flag '{"flag": "nvme"}'
    r bdev_malloc_create '{"num_blocks": 8192, "block_size": 512, "name": "m"}'
    wrong -17 'File exists' bdev_malloc_create '{"num_blocks": 8, "block_size": 512, "name": "m"}'
    wrong -2 'No such file or directory' bdev_aio_create "{\"name\": \"a\", \"filename\": \"$work/files/none\"}"
    truncate -s 1M files/real.img other.img
    ln -s ../other.img files/link.img
    wrong -1 'Operation not permitted' bdev_aio_create "{\"name\": \"a\", \"filename\": \"$work/other.img\"}"
    wrong -1 'Operation not permitted' bdev_aio_create "{\"name\": \"a\", \"filename\": \"$work/files/link.img\"}"
    wrong -32603 'Unable to create URING bdev.' bdev_uring_create "{\"name\": \"a\", \"filename\": \"$work/none\"}"
    r nvmf_create_subsystem "{\"nqn\": \"$n\", \"allow_any_host\": true}"
    wrong -32603 "Unable to create subsystem $n" nvmf_create_subsystem "{\"nqn\": \"$n\"}"
    wrong -32603 'Unable to create subsystem x' nvmf_create_subsystem '{"nqn": "x"}'
    wrong -32602 'Invalid parameters' nvmf_subsystem_add_ns "{\"nqn\": \"$n\", \"namespace\": {\"bdev_name\": \"none\"}}"
    r nvmf_subsystem_add_ns "{\"nqn\": \"$n\", \"namespace\": {\"bdev_name\": \"m\", \"nsid\": 10}}" && is '. == 10'
    wrong -32602 'Invalid parameters' nvmf_subsystem_add_ns "{\"nqn\": \"$n\", \"namespace\": {\"bdev_name\": \"m\"}}"
    r nvmf_subsystem_set_ns_ana_group "{\"nqn\": \"$n\", \"nsid\": 10, \"anagrpid\": 512}" && is '. == true'
    wrong -32602 'Invalid parameters' nvmf_subsystem_set_ns_ana_group "{\"nqn\": \"$n\", \"nsid\": 10, \"anagrpid\": 513}"
    wrong -32602 'Invalid parameters' nvmf_ns_add_host "{\"nqn\": \"$n\", \"nsid\": 10, \"host\": \"nqn.2026-11.test:h\"}"
    wrong -32602 'Invalid parameters' nvmf_subsystem_set_ns_ana_group "{\"nqn\": \"$n\", \"nsid\": 1, \"anagrpid\": 1}"
    wrong -32602 'Invalid parameters' nvmf_subsystem_remove_ns "{\"nqn\": \"$n\", \"nsid\": 1}"
    wrong -32602 'Invalid parameters' nvmf_subsystem_add_listener "{\"nqn\": \"$n\", \"listen_address\": {\"trtype\": \"tcp\", \"traddr\": \"192.0.2.1\"}}"
    wrong -32603 'Unable to find a target.' nvmf_get_subsystems '{"tgt_name": "other"}'
    # A device goes with its namespace.
    r bdev_malloc_delete '{"name": "m"}'
    r nvmf_get_subsystems && is '.[1].namespaces == []'
}

# What the configuration file has is shown, and stays its own.
test_rpc_one_owner() {
    local n=nqn.2026-11.test:rpc
    configure mem:4MiB
    rpc=$work/rpc.sock
    background target.log env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve --config target.toml --rpc "$rpc" --state state.toml
    target=$pid
    until_line target.log '^ready' "$target"
    r bdev_get_bdevs && is '.[0].claimed and (.[0].name | endswith("/1"))'
    wrong -1 'Operation not permitted' bdev_malloc_delete "{\"name\": \"$nqn/1\"}"
    wrong -32603 'Unable to create subsystem' nvmf_create_subsystem "{\"nqn\": \"$nqn\"}"
    r bdev_malloc_create '{"num_blocks": 8192, "block_size": 512, "name": "m"}'
    r nvmf_create_subsystem "{\"nqn\": \"$n\", \"allow_any_host\": true}"
    r nvmf_subsystem_add_ns "{\"nqn\": \"$n\", \"namespace\": {\"bdev_name\": \"m\"}}"
    r nvmf_subsystem_add_listener "{\"nqn\": \"$n\", \"listen_address\": {\"trtype\": \"tcp\", \"traddr\": \"127.0.0.2\", \"trsvcid\": \"$port\"}}"
    # Each is reached where it listens, also after the file was read again.
    for _ in 1 2; do
        "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" >identify.txt
        "$ROADTRAIN" identify -a 127.0.0.2 -s "$port" -n "$n" >identify.txt
        refused '.' "$ROADTRAIN" identify -a 127.0.0.2 -s "$port" -n "$nqn"
        refused '.' "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$n"
        kill -HUP "$target"
        until_line target.log 'reloaded' "$target"
    done
    # What the file has is changed until it is read again.
    r bdev_malloc_create '{"num_blocks": 8192, "block_size": 512, "name": "shown"}'
    r nvmf_subsystem_add_ns "{\"nqn\": \"$nqn\", \"namespace\": {\"bdev_name\": \"shown\"}}" && is '. == 2'
    wrong -32602 'is namespace 2 of' nvmf_subsystem_add_ns "{\"nqn\": \"$n\", \"namespace\": {\"bdev_name\": \"shown\"}}"
    r nvmf_subsystem_remove_ns "{\"nqn\": \"$nqn\", \"nsid\": 1}"
    r nvmf_subsystem_allow_any_host "{\"nqn\": \"$nqn\", \"allow_any_host\": false}"
    r nvmf_subsystem_add_host "{\"nqn\": \"$nqn\", \"host\": \"nqn.2026-11.test:h\"}"
    r nvmf_subsystem_add_listener "{\"nqn\": \"$nqn\", \"listen_address\": {\"trtype\": \"tcp\", \"traddr\": \"127.0.0.3\", \"trsvcid\": \"$port\"}}"
    r nvmf_get_subsystems "{\"nqn\": \"$nqn\"}" && is '.[0] | .owner == "file" and [.namespaces[].nsid] == [2] and .allow_any_host == false'
    "$ROADTRAIN" identify -a 127.0.0.3 -s "$port" -n "$nqn" -q nqn.2026-11.test:h >identify.txt
    refused '.' "$ROADTRAIN" identify -a 127.0.0.3 -s "$port" -n "$nqn"
    r nvmf_subsystem_remove_listener "{\"nqn\": \"$nqn\", \"listen_address\": {\"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$port\"}}"
    refused '.' "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" -q nqn.2026-11.test:h
    r nvmf_delete_subsystem "{\"nqn\": \"$nqn\"}"
    "$ROADTRAIN" ctl --rpc "$rpc" config reload >reload.txt || fail "$(cat target.log)"
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$nqn" >identify.txt
    r nvmf_get_subsystems "{\"nqn\": \"$nqn\"}" && is '.[0] | [.namespaces[].nsid] == [1] and .allow_any_host'
    "$ROADTRAIN" identify -a 127.0.0.2 -s "$port" -n "$n" >identify.txt
}

# What is no request is refused, within bounds; others are served meanwhile.
test_rpc_hostile() {
    managed
    python3 "$top/tests/e2e/rpc_hostile.py" "$rpc" || fail "$(cat target.log)"
    alive "$target" || fail 'the target has ended'
    r rpc_get_methods
    # Each kind is a line with who it was and what was wrong, and then counted.
    for _ in $(seq 50); do
        wrong -19 'No such device: none' bdev_get_bdevs '{"name": "none"}'
    done
    is_logged 'RPC: an invalid request (-32700) from process [0-9]* of user [0-9]*: Parse error: .*: GET . HTTP'
    is_logged 'RPC: an invalid request (-32600) from process [0-9]* of user [0-9]*: Invalid request: .*: {}'
    is_logged 'RPC: an incomplete request from process .*: [0-9]* bytes of it arrived within 30s; more of that are counted'
    is_logged 'RPC: too many connections from process .*: 64 are open'
    is_logged 'RPC: bdev_get_bdevs refused (-19) from process .*: No such device: none; more'
    until_line target.log 'RPC: bdev_get_bdevs refused \(-19\): [0-9]* more in [0-9]* s, the last from process' "$target"
    until_line target.log 'RPC: an incomplete request: [0-9]* more in' "$target"
    [ "$(grep -c 'RPC: ' target.log)" -lt 40 ] || fail 'everything is logged'
}

# The same over HTTP, with and without credentials.
test_rpc_http() {
    local at
    at=127.0.0.1:$(free_port)
    echo 'ada:lovelace' >credentials
    chmod 644 credentials
    ! "$ROADTRAIN" serve --rpc-http "$at" --rpc-credentials credentials >open.log 2>&1 || fail 'others can read the credentials'
    grep -q 'chmod 600' open.log || fail "$(cat open.log)"
    chmod 600 credentials
    ! "$ROADTRAIN" serve --rpc-http 192.0.2.1:1 --rpc-credentials credentials >far.log 2>&1 || fail 'not a loopback address'
    grep -q 'rpc-http-anywhere' far.log || fail "$(cat far.log)"
    managed --rpc-http "$at" --rpc-credentials credentials
    python3 "$top/tests/e2e/rpc_http.py" "$at" ada lovelace || fail "$(tail -n 50 target.log)"
    [ "$(grep -c 'wrong credentials from' target.log)" = 1 ] || fail "$(grep 'wrong credentials' target.log)"
    # The sum comes after ten seconds.
    [ "${THOROUGH-}" != 1 ] ||
        until_line target.log 'RPC: wrong credentials: [0-9]* more in [0-9]* s, the last from 127\.0\.0\.1:[0-9]* over HTTP' "$target"
    is_logged 'RPC: an invalid request (-32700) from 127.0.0.1:[0-9]* over HTTP: Parse error'
    is_logged 'RPC: HTTP 405 from 127.0.0.1:[0-9]* over HTTP: the method is GET, and POST is expected'
    is_logged 'RPC: HTTP 413 from 127.0.0.1:[0-9]* over HTTP: Content-Length Some("52[0-9]*"), at most 262144'
    is_logged "HTTP at $at: an unauthenticated connection closed for another one from 127.0.0.1:[0-9]*"
    ! grep -qE 'guess|lovelace' target.log || fail 'what may be a password is in the log'
}

# is_logged PATTERN: once or more
is_logged() { grep -q -- "$1" target.log || fail "not logged: $1: $(grep 'RPC: \|HTTP' target.log)"; }

# A volume is there as a whole or not at all, in the list of its store and as a file, at whatever system call of its
# creation the process is killed; and what is in the state file likewise.
test_rpc_killed_at_every_call() {
    command -v strace >/dev/null || skip 'there is no strace'
    mkdir volumes
    make_one() { "$ROADTRAIN" ctl --rpc "$rpc" rpc bdev_lvol_create "{\"lvs_name\": \"vols\", \"lvol_name\": \"$1\", \"size_in_mib\": 4}"; }
    delete_one() { r bdev_lvol_delete "{\"name\": \"vols/$1\"}"; }
    killed_at_every_call vols/
    make_one() { "$ROADTRAIN" ctl --rpc "$rpc" rpc bdev_malloc_create "{\"num_blocks\": 8192, \"block_size\": 512, \"name\": \"$1\"}"; }
    delete_one() { r bdev_malloc_delete "{\"name\": \"$1\"}"; }
    killed_at_every_call ''
}

# killed_at_every_call PREFIX: of what `make_one NAME` does. Its calls are seen first.
killed_at_every_call() {
    local tracer call nth name last=0 is_killed killed=0 here="managed --lvstore vols=$work/volumes,size=1GiB"
    $here
    strace -f -qq -o probe.txt -p "$target" 2>probe.log &
    tracer=$!
    until_attached "$tracer"
    make_one first >made.json
    kill -INT "$tracer" && wait "$tracer" || true
    calls_of_threads <probe.txt >calls.txt
    grep -q '^fsync 2$' calls.txt && grep -q '^rename 1$' calls.txt || { cat probe.txt; fail 'where are its calls?'; }
    kill -TERM "$target" && ended "$target" 20
    while read -r call nth <&3; do
        last=$((last + 1)) name=v$last is_killed=
        $here
        background strace.log strace -f -qq -e "trace=$call" -e "inject=$call:signal=KILL:when=$nth" -o killed.txt -p "$target"
        until_attached "$pid"
        make_one "$name" >made.json 2>made.log || is_killed=1 killed=$((killed + 1))
        # A call that comes after the answer, or not as often as at first, leaves it running.
        kill -KILL "$target" 2>kill.log || true
        ended "$target" 60
        $here
        r bdev_get_bdevs
        has_one "$1first" || fail "killed at $call $nth: the first one is gone"
        # What was made is whole, so that it can be removed, and nothing else is left of it.
        if has_one "$1$name"; then
            delete_one "$name"
        else
            [ -n "$is_killed" ] || fail "killed at $call $nth: what was answered is gone"
        fi
        kill -TERM "$target" && ended "$target" 20
        # A file follows the answer that its volume is deleted. The list of volumes has spare space in a file of its own.
        [ "$(find volumes -type f ! -name '*.spare' | wc -l)" = 2 ] || { ls -la volumes; fail "killed at $call $nth: a file is left"; }
    done 3<calls.txt
    # How often a call is made differs from run to run (a thread that waits polls), so this bound is a low one.
    [ "$killed" -gt $((last / 4)) ] || fail "it was killed only $killed times of $last before it answered"
    echo "measured: killed at $killed system calls"
}

# has_one NAME: it is a bdev, or another name of one, in the last result
has_one() { jq -e --arg name "$1" '[.[] | .name, .aliases[]] | index($name)' r.json >/dev/null; }

# calls_of_threads: of what strace says, each call that a thread makes and how often: "NAME 1", "NAME 2", ...
calls_of_threads() {
    awk '$2 ~ /^[a-z0-9_]+\(/ { call = $2; sub(/\(.*/, "", call); n = ++count[$1, call]; if (n > most[call]) { most[call] = n; print call, n } }'
}

# is_traced: every thread of the target has a tracer
is_traced() {
    local status
    for status in /proc/"$target"/task/*/status; do
        grep -q '^TracerPid:[[:space:]]*[1-9]' "$status" 2>/dev/null || [ ! -e "$status" ] || return 1
    done
}

# until_attached PID: that strace traces the target, or has already ended it
until_attached() {
    local n
    for n in $(seq 400); do
        alive "$target" && ! is_traced || return 0
        alive "$1" || ! alive "$target" || skip "strace cannot be used here: $(cat probe.log)"
        sleep 0.05
    done
    fail 'strace does not attach'
}

# 1,000 changes by eight clients at once with a kill -9 in the middle: what was answered is there, and hosts see it.
test_rpc_many_clients() {
    managed
    port=$(free_port)
    : >answered.txt
    python3 "$top/tests/e2e/rpc_many.py" "$rpc" "$port" "$work/files" first "$target" || fail "$(cat target.log)"
    ended "$target" 60
    managed
    python3 "$top/tests/e2e/rpc_many.py" "$rpc" "$port" "$work/files" second || fail "$(cat target.log)"
    r nvmf_get_subsystems
    jq -r '.[1:][] | select(.namespaces != [] and .listen_addresses != []) | .nqn' r.json | head -n 5 >nqns.txt
    while read -r n; do
        "$ROADTRAIN" list -a 127.0.0.1 -s "$port" -n "$n" >list.txt || fail "$n: $(cat list.txt)"
    done <nqns.txt
}

# Thousands of namespaces: lists of several pages, changes, metrics and top, and a journal of the state that a restart
# continues after kill -9. COUNT=10000 measures what a large target costs.
test_rpc_thousands_of_namespaces() {
    local count=${COUNT:-1100} metrics
    port=$(free_port)
    metrics=127.0.0.1:$(free_port)
    managed --metrics "$metrics"
    python3 "$top/tests/e2e/rpc_thousands.py" "$rpc" "$target" "$count" "$metrics" "$port" || fail "$(tail target.log)"
    "$ROADTRAIN" top --once --interval 0.1 --limit 20 --metrics "$metrics" >top.txt
    grep -q "^the 20 busiest, $((count - 20)) more" top.txt || fail "$(tail top.txt)"
    [ -e state.toml.journal ] || fail 'there is no journal'
    kill -KILL "$target"
    ended "$target" 60
    managed
    AGAIN=1 python3 "$top/tests/e2e/rpc_thousands.py" "$rpc" "$target" "$count" "$metrics" "$port" || fail "$(tail target.log)"
    # A clean end leaves one file, for versions without journals.
    r bdev_null_create '{"name": "last", "num_blocks": 8, "block_size": 512}'
    r bdev_null_delete '{"name": "last"}'
    [ -e state.toml.journal ] || fail 'there is no journal'
    kill -TERM "$target"
    ended "$target" 60
    [ ! -e state.toml.journal ] || fail 'the journal is left'
    managed
    AGAIN=1 python3 "$top/tests/e2e/rpc_thousands.py" "$rpc" "$target" "$count" "$metrics" "$port" || fail "$(tail target.log)"
}

# Keys by name: a host authenticates with one that came by RPC, and with TLS; after kill -9, too, and SIGHUP.
test_rpc_keys() {
    local n=nqn.2026-11.test:keys other=nqn.2026-11.test:open host=nqn.2026-11.test:host at tls key
    printf 'file_roots = ["%s/files"]\n' "$work" >target.toml
    rpc=$work/rpc.sock
    mkdir -p files
    serve_keys() {
        background target.log env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve --config target.toml --rpc "$rpc" --state state.toml
        target=$pid
        until_line target.log '^ready' "$target"
    }
    serve_keys
    port=$(free_port)
    tls=$(free_port)
    (umask 077 && for key in host ctrl wrong; do "$ROADTRAIN" keys dhchap >files/$key.key || exit 1; done &&
        "$ROADTRAIN" keys tls >files/host.tls && "$ROADTRAIN" keys tls >files/wrong.tls)
    for key in host.key ctrl.key host.tls; do
        r keyring_file_add_key "{\"name\": \"$key\", \"path\": \"$work/files/$key\"}"
    done
    r bdev_malloc_create '{"num_blocks": 8192, "block_size": 512, "name": "m"}'
    r nvmf_create_subsystem "{\"nqn\": \"$n\"}"
    r nvmf_create_subsystem "{\"nqn\": \"$other\", \"allow_any_host\": true}"
    r nvmf_subsystem_add_ns "{\"nqn\": \"$n\", \"namespace\": {\"bdev_name\": \"m\"}}"
    at="{\"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$port\"}"
    r nvmf_subsystem_add_listener "{\"nqn\": \"$n\", \"listen_address\": $at}"
    r nvmf_subsystem_add_listener "{\"nqn\": \"$other\", \"listen_address\": $at}"
    wrong -32602 'Invalid parameters' nvmf_subsystem_add_host "{\"nqn\": \"$n\", \"host\": \"$host\", \"dhchap_key\": \"none\"}"
    r nvmf_subsystem_add_host "{\"nqn\": \"$n\", \"host\": \"$host\", \"dhchap_key\": \"host.key\", \"dhchap_ctrlr_key\": \"ctrl.key\", \"psk\": \"host.tls\"}"
    r nvmf_get_subsystems "{\"nqn\": \"$n\"}" && is '.[0].hosts == [{nqn: $h, dhchap_key: "host.key", dhchap_ctrlr_key: "ctrl.key"}]' --arg h "$host"
    at="{\"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$tls\"}"
    r nvmf_subsystem_add_listener "{\"nqn\": \"$n\", \"listen_address\": $at, \"secure_channel\": true}"
    wrong -32602 'Invalid parameters' nvmf_subsystem_add_listener "{\"nqn\": \"$other\", \"listen_address\": $at}"
    r framework_get_config '{"name": "nvmf"}' && cp r.json saved.json
    # What this says holds at first, when the file was read again, and after kill -9.
    keys_hold
    kill -HUP "$target"
    until_line target.log 'reloaded' "$target"
    keys_hold
    kill -KILL "$target" && ended "$target" 60
    serve_keys
    r framework_get_config '{"name": "nvmf"}' && cmp r.json saved.json || fail 'another configuration after kill -9'
    keys_hold
    ! grep -rqE 'DHHC|NVMeTLSkey' state.toml target.log || fail 'a key is written down'
    # A queue whose host has proved who it is says how.
    background bench.out "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$n" -q "$host" --dhchap-secret files/host.key \
        --rw read --bs 4k --size 1MiB --seconds 600
    local bench=$pid
    for _ in $(seq 400); do
        r nvmf_subsystem_get_qpairs "{\"nqn\": \"$n\"}"
        ! jq -e '[.[] | select(.qid > 0)] | length > 0 and all(.auth != null)' r.json >/dev/null || break
        sleep 0.05
    done
    is 'all(.auth | .state == "completed" and (.digest | startswith("sha")) and (.dhgroup == "null" or (.dhgroup | startswith("ffdhe"))))'
    kill -INT "$bench"
    wait "$bench" || fail "$(cat bench.out)"
    # Another key, and none.
    r keyring_file_add_key "{\"name\": \"new\", \"path\": \"$work/files/wrong.key\"}"
    r nvmf_subsystem_set_keys "{\"nqn\": \"$n\", \"host\": \"$host\", \"dhchap_key\": \"new\"}"
    by_key wrong.key >by_key.log
    refused 'key' by_key host.key
    wrong -16 'Device or resource busy' keyring_file_remove_key '{"name": "new"}'
    r nvmf_subsystem_set_keys "{\"nqn\": \"$n\", \"host\": \"$host\"}"
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$n" -q "$host" >identify.txt
    r keyring_file_remove_key '{"name": "new"}'
    r keyring_get_keys && is '[.[].name] == ["host.key", "ctrl.key", "host.tls"]'
}

# by_key FILE, by_tls FILE: the host identifies the subsystem of test_rpc_keys
by_key() { "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$n" -q "$host" --dhchap-secret "files/$1" "${@:2}"; }
by_tls() { "$ROADTRAIN" identify -a 127.0.0.1 -s "$tls" -n "$n" -q "$host" --tls --tls-key "files/$1" --dhchap-secret files/host.key; }

# keys_hold: hosts are let in by their keys, and by no others
keys_hold() {
    by_key host.key --dhchap-ctrl-secret files/ctrl.key >by_key.log || fail "$(cat by_key.log)"
    refused 'key' by_key wrong.key
    refused '.' by_key host.key --dhchap-ctrl-secret files/wrong.key
    refused '.' "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$n" -q "$host"
    # The key is for that subsystem only.
    "$ROADTRAIN" identify -a 127.0.0.1 -s "$port" -n "$other" -q "$host" >identify.txt
    by_tls host.tls >by_tls.log || fail "$(cat by_tls.log)"
    refused '.' by_tls wrong.tls
    refused '.' "$ROADTRAIN" identify -a 127.0.0.1 -s "$tls" -n "$n" -q "$host" --dhchap-secret files/host.key
}

# Hosts see referrals in the discovery log.
test_rpc_referrals() {
    local n=nqn.2026-11.test:rpc
    local other='{"address": {"trtype": "tcp", "traddr": "192.0.2.1", "trsvcid": "8010"}}'
    managed
    port=$(free_port)
    r nvmf_create_subsystem "{\"nqn\": \"$n\", \"allow_any_host\": true}"
    r nvmf_subsystem_add_listener "{\"nqn\": \"$n\", \"listen_address\": {\"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$port\"}}"
    r nvmf_discovery_add_referral "$other"
    kill -KILL "$target" && ended "$target" 60
    managed
    "$ROADTRAIN" discover -a 127.0.0.1 -s "$port" >discover.txt
    grep -q '192\.0\.2\.1' discover.txt && grep -q 8010 discover.txt || fail "$(cat discover.txt)"
    r nvmf_discovery_get_referrals && is '.[0] | .address.trsvcid == "8010" and .secure_channel == false'
    r nvmf_discovery_remove_referral "$other"
    wrong -32603 'Unable to remove a referral.' nvmf_discovery_remove_referral "$other"
    "$ROADTRAIN" discover -a 127.0.0.1 -s "$port" >discover.txt
    ! grep -q '192\.0\.2\.1' discover.txt || fail "$(cat discover.txt)"
}

# `roadtrain ctl`: each kind of object once, in JSON as well.
test_rpc_ctl() {
    local n=nqn.2026-11.test:ctl host=nqn.2026-11.test:host at
    managed --lvstore "vols=$work/vols,size=64MiB"
    port=$(free_port)
    at=127.0.0.1:$port
    truncate -s 4M files/disk.img
    c device add disk "file:$work/files/disk.img" && is '. == "disk"'
    c device add void null:1MiB
    c device resize void 2MiB
    c device list && is '[.[] | [.name, .capacity_bytes, .used]] == [["disk", 4194304, false], ["void", 2097152, false]]'
    # A file is made as `serve` does, below the folders for requests; a device without its file says how.
    c device add made "file:$work/files/made.img,size=4MiB,lba=4096" && [ "$(stat -c %s files/made.img)" = 4194304 ]
    c device remove made && [ -e files/made.img ]
    no 1 'device made: Operation not permitted' device add made "file:$work/elsewhere.img,size=4MiB"
    no 1 'device made: No such file or directory: .*/none.img does not exist: make it first: truncate -s SIZE' \
        device add made "file:$work/files/none.img"
    no 2 'a limit is of a namespace' device add made mem:4MiB,iops=10
    c subsystem add -n $n --serial S1 && is '.changes[0].nqn == $n' --arg n $n
    c subsystem list && is '.[0] | .nqn == $n and .owner == "state" and .serial == "S1" and .any_host and .namespace_count == 0' --arg n $n
    c namespace add -n $n device:disk --nsid 5 && is '.changes[0].nsid == 5'
    truncate -s 8M files/disk.img
    c namespace resize -n $n --nsid 5
    c namespace list -n $n && is '.[0] | .nsid == 5 and .device == "disk" and .capacity_bytes == 8388608'
    c listener add -n $n -a "$at"
    c listener list && is '.[0] | .traddr == "127.0.0.1" and .trsvcid == $p' --arg p "$port"
    c host allow -n $n -q $host
    c host deny -n $n --any
    c host list -n $n && is '[.[].host_nqn] == [$h]' --arg h $host
    c volume create vols/v 8MiB --thin && is 'length == 36'
    c volume snapshot vols/v s
    c volume clone vols/s k
    c volume rename vols/k other
    c volume resize vols/v 12MiB
    c volume inflate vols/v
    c volume list vols && is '[.[] | [.name, .kind, .capacity_bytes]] | index([["vols/v", "thick", 12582912]]) and index([["vols/s", "snapshot", 8388608]])'
    c store list && is '.[0] | .name == "vols" and .capacity_bytes == 67108864'
    # Who is connected; a volume in use stays unless it is forced.
    c namespace add -n $n device:vols/v
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n $n -q $host --nsid 1 --rw read --bs 4k --size 1MiB --seconds 30 >bench.out 2>&1 &
    local bench=$!
    for _ in $(seq 100); do
        c connection list -n $n
        [ "$(cat r.json)" = "[]" ] || break
        sleep 0.05
    done
    is '.[0] | .nqn == $n and .host_nqn == $h' --arg n $n --arg h $host
    no 1 'Device or resource busy' volume delete vols/v
    c volume delete vols/v --force
    # Its host is notified, and ends by itself.
    ended $bench 20
    ! wait $bench && grep -q 'Invalid Namespace or Format' bench.out || fail "$(cat bench.out)"
    c volume delete vols/other
    no 1 'No such device' volume delete vols/v
    c host deny -n $n -q $host
    c listener remove -n $n -a "$at"
    c namespace remove -n $n --nsid 5
    c subsystem remove -n $n
    c device remove disk
    c device remove void
    c device list && is '[.[].name] | index("disk") == null'
    no 2 'ADDRESS' listener add -n $n -a nowhere
}

# The log's level, and the end.
test_rpc_process() {
    managed
    r log_get_print_level && is '. == "NOTICE"'
    r log_set_level '{"level": "DEBUG"}'
    r log_get_level && is '. == "DEBUG"'
    r spdk_get_version
    grep -q 'RPC: spdk_get_version' target.log || fail "$(cat target.log)"
    r log_set_print_level '{"level": "ERROR"}'
    r rpc_get_methods
    ! grep -q 'RPC: rpc_get_methods' target.log || fail 'it is logged'
    wrong -32602 'Invalid parameters' spdk_kill_instance '{"sig_name": "SIGKILL"}'
    r spdk_kill_instance '{"sig_name": "SIGTERM"}' && is '. == true'
    ended "$target" 10
    wait "$target" || fail "status $?"
}

# What the shell offers for a name is what the target has.
test_ctl_completes_names() {
    local a=nqn.2026-11.test:names
    mkdir bin volumes
    ln -s "$ROADTRAIN" bin/roadtrain
    PATH=$work/bin:$PATH
    roadtrain completions bash >complete.sh
    managed --lvstore "vols=$work/volumes,size=1GiB"
    r bdev_malloc_create '{"num_blocks": 8192, "block_size": 512, "name": "disk0"}'
    r bdev_lvol_create '{"lvs_name": "vols", "lvol_name": "first", "size_in_mib": 4}'
    r nvmf_create_subsystem "{\"nqn\": \"$a\"}"
    offers 'vols/first' ctl --rpc "$rpc" volume delete ''
    offers 'disk0' ctl --rpc "$rpc" device remove di
    offers "$a" ctl namespace --rpc "$rpc" add -n ''
    offers 'vols' ctl --rpc "$rpc" volume list ''
    offers 'nvmf_get_subsystems' ctl --rpc "$rpc" rpc nvmf_get_sub
    offers "$a" ctl --rpc "$rpc" connection list -n ''
    offers 'device:disk0' ctl --rpc "$rpc" namespace add ''
    (umask 077 && "$ROADTRAIN" keys dhchap >files/host.key)
    r keyring_file_add_key "{\"name\": \"host7\", \"path\": \"$work/files/host.key\"}"
    offers 'host7' ctl --rpc "$rpc" host allow --dhchap-key ''
    r nvmf_discovery_add_referral '{"address": {"trtype": "tcp", "traddr": "192.0.2.1"}}'
    offers '192.0.2.1:8009' ctl --rpc "$rpc" referral remove -a ''
    # What runs here says the rest.
    port=$(free_port)
    r nvmf_subsystem_add_listener "{\"nqn\": \"$a\", \"listen_address\": {\"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\", \"trsvcid\": \"$port\"}}"
    r nvmf_subsystem_add_ns "{\"nqn\": \"$a\", \"namespace\": {\"bdev_name\": \"disk0\", \"nsid\": 7}}"
    export ROADTRAIN_RUNTIME_DIR=$work/served
    offers 'target0' ctl config reload --id ''
    offers "127.0.0.1:$port" ctl listener set -a ''
    offers '7' ctl namespace snapshot list --nsid ''
    offers 'device:vols/first' ctl subsystem add -n nqn.x:y --namespace ''
    offers "127.0.0.1:$port" status -a ''
    offers "127.0.0.1:$port" slow -a ''
    # A host that is connected, and not named.
    r nvmf_subsystem_allow_any_host "{\"nqn\": \"$a\", \"allow_any_host\": true}"
    background bench.out "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n $a -q nqn.2026-11.test:busy --nsid 7 --rw read \
        --bs 4k --size 1MiB --seconds 600
    eventually 20 offers_host ctl host limit -n $a -q ''
    offers_host ctl host allow -n $a -q ''
    offers_host ctl subsystem add -n nqn.x:y --allow-host ''
    kill -TERM "$pid" && ended "$pid" 20
    offers '7' ctl namespace remove -n "$a" --nsid ''
    offers "$a" ctl namespace snapshot list -n ''
    [ -z "$(completed ctl namespace remove -n nqn.x:y --nsid 7)" ] || fail 'namespaces of nobody'
    offers '--ctrl-loss-tmo' attach --ctrl
    # Without a target nothing is offered, and no command waits.
    kill -TERM "$target" && ended "$target" 20
    [ -z "$(completed ctl --rpc "$rpc" volume delete v)" ] || fail 'names of nobody'
    [ -z "$(completed ctl listener set -a 1)" ] || fail 'listeners of nobody'
}

# offers_host WORD...: bash offers the connected host
offers_host() { completed "$@" | grep -qxF nqn.2026-11.test:busy; }

# completed WORD...: what bash offers for the last one, one a line
completed() {
    # shellcheck disable=SC2016
    timeout 10 bash -c '. ./complete.sh
        COMP_WORDS=(roadtrain "$@") COMP_CWORD=$# COMP_TYPE=9
        _clap_complete_roadtrain roadtrain "${!#}" "" 2>complete.log
        printf "%s\n" "${COMPREPLY[@]}"' - "$@" | tr '\013' '\n' | sed 's/ *$//'
}

# offers NAME WORD...: bash offers that name for the last word
offers() { completed "${@:2}" | grep -qxF -- "$1" || { completed "${@:2}"; cat complete.log; fail "${*:2}: $1 is not offered"; }; }
