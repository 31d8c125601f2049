# shellcheck shell=bash
# The driver with a target on this machine: volumes are attached by FUSE with a loop device over it.

# shellcheck source=tests/lib/rpc.sh
. "$top/tests/lib/rpc.sh"
# shellcheck source=tests/lib/fuse.sh
. "$top/tests/lib/fuse.sh"

# csi_target: a target with the stores vols and more, on a file system that shares extents if there is one
csi_target() {
    port=${port:-$(free_port)}
    [ -n "${stores-}" ] || csi_stores
    # Without a subsystem at first: the driver makes them.
    managed --lvstore "vols=$stores/vols,size=4GiB" --lvstore "more=$stores/more,size=1GiB"
}

csi_stores() {
    stores=$work
    truncate -s 40G xfs.img # larger than the stores: their quotas count
    mkdir -p xfs
    if mkfs.xfs -q -m reflink=1 xfs.img 2>xfs.log && mount -o loop xfs.img xfs 2>>xfs.log; then stores=$work/xfs; fi
    trap csi_clean_up EXIT
    dead_loops >dead_loops.txt # others' and earlier ones
}

# csi_driver [OPTIONS]: the driver for $port at $csi; leaves its process in $driver
csi_driver() {
    csi=$work/csi.sock
    background driver.log "$CSI" --endpoint "unix://$csi" --node-id node-1 --target "127.0.0.1:$port" --rpc "$rpc" \
        --store vols --store more --attach fuse --roadtrain "$ROADTRAIN" --run-dir "$work/node" --log-level debug "$@"
    driver=$pid
    until_line driver.log ' ready ' "$driver"
}

# What a failed test leaves.
csi_clean_up() {
    local device backing mount
    [ -z "${driver-}" ] || ! is_own "$driver" || kill -KILL "$driver" 2>/dev/null || true
    awk -v w="$work/" 'index($2, w) == 1 && $2 != w "xfs" {print $2}' /proc/self/mounts | sort -r | while read -r mount; do
        umount -l "$mount" || true
    done
    "$ROADTRAIN" detach --all --timeout 5 >/dev/null 2>&1 || true
    [ -z "${target-}" ] || ! is_own "$target" || kill -KILL "$target" 2>/dev/null || true
    losetup -n -O NAME,BACK-FILE | while read -r device backing; do
        case $backing in "$work/node"*) losetup -d "$device" ;; esac
    done
    ! mountpoint -q "$work/xfs" || umount -l "$work/xfs"
}

# kubelet SCRIPT [ARGUMENTS]: a script that calls the driver, by Python's gRPC
kubelet() {
    python_with csi-grpc grpcio grpcio-tools
    "$python/python" "$top/tests/csi/$1" "$csi" "$top/csi/proto" "${@:2}"
}

# dead_loops: loop devices over files of mounts that are gone, or of this test's
dead_loops() { losetup -n -O NAME,BACK-FILE | awk -v w="$work/node" '$2 == "/nvme0n1" || index($2, w) == 1 {print $1}' | sort; }

no_loop_left() { [ -z "$(comm -13 dead_loops.txt <(dead_loops))" ]; }

# nothing_left: no volume, subsystem, attachment, mount or loop device is left
nothing_left() {
    r bdev_lvol_get_lvols && is '. == []'
    r nvmf_get_subsystems && is 'length == 1' # discovery
    "$ROADTRAIN" list --json >list.json
    holds list.json '[.[] | select(.kind == "attachment")] == []'
    ! grep -F "$work/node" /proc/self/mounts || fail 'a mount is left'
    ! grep -F "$work/kubelet" /proc/self/mounts || fail 'a mount of a pod is left'
    # Of a mount that is gone only the name of the file is shown.
    eventually 20 no_loop_left
    [ -z "$(ls -A "$work/node" 2>/dev/null)" ] || fail "left: $(find "$work/node")"
    r bdev_lvol_get_lvstores && is 'all(.[]; .free_clusters == .total_data_clusters)'
}

# The suite of Kubernetes, unmodified: all of its tests that apply pass.
test_csi_sanity() {
    local sums
    need_loop
    csi_sanity_program
    csi_target
    csi_driver
    mkdir -p tmp
    # Sizes are small: the machine has to hold them all.
    "$csi_sanity" --csi.endpoint="unix://$csi" --csi.testvolumesize=$((64 << 20)) \
        --csi.testvolumeexpandsize=$((96 << 20)) --csi.mountdir="$work/kubelet-mount" \
        --csi.stagingdir="$work/kubelet-stage" --ginkgo.no-color >sanity.log 2>&1 ||
        { grep -A12 'Summarizing\|FAIL' sanity.log | tail -n 60; fail 'csi-sanity fails'; }
    sums=$(grep -o '[0-9]* Passed.*Skipped' sanity.log)
    echo "measured: csi-sanity: $sums"
    # A suite that skips everything passes, too.
    [ "$(sed 's/ Passed.*//' <<<"$sums")" -ge 70 ] || fail "$sums"
    nothing_left
}

# csi_sanity_program: leaves its path in $csi_sanity; builds it once
csi_sanity_program() {
    "$top/scripts/csi-tools.sh" csi-sanity >tools.out 2>&1 || skip "$(tail -n 1 tools.out)"
    csi_sanity=$top/target/csi-tools/csi-sanity
}

# Calls in the order of kubelet, of a file system and of a block volume: stage, publish, write, unpublish, a new driver,
# stage again, the data is there. Snapshots, copies, growth, health, other nodes.
test_csi_kubelet_order() {
    local metrics
    need_loop
    csi_target
    metrics=$(free_port)
    csi_driver --metrics "127.0.0.1:$metrics"
    kubelet kubelet.py first "$work/kubelet" >kubelet.log 2>&1 || fail "$(cat kubelet.log)"
    curl -sf "http://127.0.0.1:$metrics/metrics" >metrics.txt
    grep -q 'roadtrain_csi_calls_total{method="NodeStageVolume",code="Ok"} [1-9]' metrics.txt &&
        grep -q 'roadtrain_csi_store_capacity_bytes{target="target",store="vols"} 4294967296' metrics.txt || fail "$(cat metrics.txt)"
    # The node plugin is killed and started again; volumes stay attached.
    kill -KILL "$driver" && ended "$driver" 10
    csi_driver
    kubelet kubelet.py again "$work/kubelet" >kubelet.log 2>&1 || fail "$(cat kubelet.log)"
    grep '^measured' kubelet.log || true
    # The process of an attachment dies: what was synced is there after staging.
    pkill_attachments
    kubelet kubelet.py after_death "$work/kubelet" >kubelet.log 2>&1 || fail "$(cat kubelet.log)"
    # The target is killed; what it had is there.
    kill -KILL "$target" && ended "$target" 30
    csi_target
    kubelet kubelet.py end "$work/kubelet" >kubelet.log 2>&1 || fail "$(cat kubelet.log)"
    nothing_left
    kill -TERM "$driver" && ended "$driver" 10
    [ ! -e "$csi" ] || fail 'the socket is left'
}

# pkill_attachments: kills the processes of all attachments
pkill_attachments() {
    local process
    "$ROADTRAIN" list --json >list.json
    for process in $(jq '.[] | select(.kind == "attachment").pid' list.json); do kill -KILL "$process"; done
}

# Lives of volumes, while driver, target and attachments are killed at any time: nothing is left, nothing is lost.
test_csi_kills() {
    need_loop
    csi_stores
    port=$(free_port) rpc=$work/rpc.sock csi=$work/csi.sock
    kubelet kills.py "${ROUNDS:-20}" "$ROADTRAIN" "$CSI" "$port" "$rpc" "$stores" "$work" >kills.log 2>&1 ||
        { tail -n 40 kills.log driver.log target.log; fail 'kills'; }
    sed -n 's/^measured/&/p' kills.log
    target=$(cat target.pid) driver=$(cat driver.pid)
    nothing_left
}

# The driver is killed at each of its steps, one after the other.
test_csi_kill_points() {
    need_loop
    csi_stores
    port=$(free_port) rpc=$work/rpc.sock csi=$work/csi.sock
    kubelet kill_points.py "$ROADTRAIN" "$CSI" "$port" "$rpc" "$stores" "$work" >points.log 2>&1 ||
        { tail -n 40 points.log driver.log; fail 'kill points'; }
    sed -n 's/^measured/&/p' points.log
    target=$(cat target.pid) driver=$(cat driver.pid)
    nothing_left
}

# A Secret's key gets to the target by --key-dir, and to the attachment by a file: a host without it is refused.
test_csi_secrets() { secrets_of dhchap; }

# The same of a key for TLS, which all connections to the volume then have.
test_csi_secrets_tls() { secrets_of tls --target-tls; }

# secrets_of KIND [OPTIONS of the driver]
secrets_of() {
    need_loop
    mkdir -p files keys
    (umask 077 && mkdir -p files/keys && "$ROADTRAIN" keys "$1" >keys/host)
    csi_target
    csi_driver --key-dir "$work/files/keys" "${@:2}"
    kubelet keys_of_secrets.py "$work/kubelet" "$1-key" "$(cat keys/host)" "$work/files/keys" >kubelet.log 2>&1 || fail "$(cat kubelet.log)"
    r keyring_get_keys && is '. == []'
    [ -z "$(ls files/keys)" ] || fail "left: $(ls files/keys)"
    nothing_left
}

# The chart: each document is what Kubernetes' schemas say, with default values and with all that can be set.
test_csi_chart() {
    local values
    python_with kubernetes-validate-1.37.0 kubernetes-validate==1.37.0
    "$top/scripts/csi-tools.sh" helm >tools.out 2>&1 || skip "$(tail -n 1 tools.out)"
    local helm=$top/target/csi-tools/helm chart=$top/packaging/helm/roadtrain-csi
    cat >all.yaml <<'EOF'
targets:
  - {name: rack-a, addresses: ["192.0.2.7:4420", "[2001:db8::7]:4420"], rpc: /run/roadtrain-serve/rpc.sock, stores: [fast, large], tls: true}
  - {name: rack-b, addresses: ["192.0.2.8:4420"], rpc: "http://192.0.2.8:8000", stores: [vols]}
rpcCredentialsSecret: credentials
imagePullSecrets: [{name: pull}]
controller: {hostRpcDir: /run/roadtrain-serve, hostKeyDir: /etc/roadtrain/keys, nodeSelector: {a: b}, tolerations: [{operator: Exists}]}
node: {attach: ublk, reaches: [rack-a], attachOptions: --lanes 2, maxVolumes: 64, nodeSelector: {a: b}}
storageClasses:
  - {name: fast, default: true, fsType: xfs, mountOptions: [noatime], secret: {name: keys}, parameters: {store: fast, provisioning: thin, mkfsOptions: -i size=512}}
snapshotClass: {create: true}
EOF
    "$helm" lint --strict --kube-version 1.31.0 "$chart" >lint.log 2>&1 || fail "$(cat lint.log)"
    for values in "$chart/values.yaml" all.yaml; do
        "$helm" template --kube-version 1.31.0 --namespace storage csi "$chart" -f "$values" >manifests.yaml 2>helm.log || fail "$(cat helm.log)"
        # Its own schema is of the snapshot controller's CRD.
        "$python/python" "$top/tests/csi/schemas.py" manifests.yaml 1.28 1.37 >schemas.log 2>&1 || fail "$(cat schemas.log)"
        cat schemas.log
    done
    # What the chart's own schema refuses.
    for values in targets[0].name=a/b node.attach=nbd storageClasses[0].parameters.provisioning=fat metricsPort=-1; do
        ! "$helm" template --kube-version 1.31.0 csi "$chart" --set "$values" >refused.log 2>&1 || fail "$values is taken"
    done
    # (Built as a Go module, helm takes an old version of Kubernetes for the cluster's, if none is named.)
    # The plain manifests are those of the chart.
    "$helm" template --kube-version 1.31.0 --namespace roadtrain-csi roadtrain-csi "$chart" | sed '/^# Source: /d' >plain.yaml
    diff <(sed '/^#/d' "$top/packaging/kubernetes/roadtrain-csi.yaml") plain.yaml >diff.log ||
        fail "packaging/kubernetes/roadtrain-csi.yaml differs from the chart: $(head -n 20 diff.log)"
    # The driver takes the file of targets of the chart.
    "$helm" template --kube-version 1.31.0 csi "$chart" -f all.yaml -s templates/driver.yaml |
        "$python/python" -c 'import sys, yaml
for one in yaml.safe_load_all(sys.stdin):
    if one["kind"] == "ConfigMap": print(one["data"]["targets.toml"].replace("/etc/roadtrain-csi", "."))' >targets.toml
    (umask 077 && echo user:word >credentials)
    background driver.log "$CSI" --endpoint "unix://$work/csi.sock" --targets targets.toml
    until_line driver.log ' ready ' "$pid"
}
