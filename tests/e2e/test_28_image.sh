# shellcheck shell=bash
# The container image of the packages: its bytes, and that runtimes start it as a user without privileges. Images are made
# of the program that is tested.

thorough+=(image_is_the_same_bytes_and_one_program image_runs_by_crun_without_privileges
    image_runs_by_podman_without_privileges image_runs_by_the_compose_file)

# image_made [FOLDER]: the image in that folder [image], of packages in debs
image_made() {
    [ -e "$top/target/sbom/roadtrain.cdx.json" ] || (cd "$top" && cargo xtask sbom) >sbom.log 2>&1 || fail "$(cat sbom.log)"
    [ -e debs ] || COMPRESSION=none LIBROADTRAIN=$work/none packages "$work/debs"
    DEBS=$work/debs "$top/scripts/image.sh" "$work/${1-image}" >image.log 2>&1 || fail "$(cat image.log)"
}

# image_blob KIND: the file of the image's `layer`, `config` or `manifest`
image_blob() {
    local digest manifest
    digest() { echo "image/oci/blobs/$(tr : / <<<"$1")"; }
    manifest=$(digest "$(jq -r '.manifests[0].digest' image/oci/index.json)")
    case $1 in
    manifest) echo "$manifest" ;;
    config) digest "$(jq -r .config.digest "$manifest")" ;;
    layer) digest "$(jq -r '.layers[0].digest' "$manifest")" ;;
    esac
}

test_image_is_the_same_bytes_and_one_program() {
    local file
    image_made
    image_made again
    diff -r image again || fail 'not reproducible'
    for file in image/oci/blobs/sha256/*; do
        [ "$(sha256sum <"$file" | cut -d' ' -f1)" = "${file##*/}" ] || fail "$file has another digest"
    done
    mkdir root
    tar -xzf "$(image_blob layer)" -C root
    [ "sha256:$(gzip -dc "$(image_blob layer)" | sha256sum | cut -d' ' -f1)" = "$(jq -r '.rootfs.diff_ids[0]' "$(image_blob config)")" ]
    # The loader is no program of its own: it starts others, and there are none.
    [ "$(cd root && find . -type f -perm /111 ! -name 'ld-linux*')" = ./usr/bin/roadtrain ] || fail "$(find root -perm /111)"
    [ -z "$(find root -perm /6000)" ] || fail 'a file is setuid'
    # All that the program loads is inside, from nowhere else.
    chroot root /usr/bin/roadtrain --version >version || fail 'it does not run by itself'
    [ "$(tar -tvzf "$(image_blob layer)" --numeric-owner | awk '$2 != "0/0" {print $1, $2, $6}')" = \
        'drwxr-x--- 65532/65532 var/lib/roadtrain/' ] || fail 'owners'
    file=root/usr/share/doc/roadtrain/roadtrain.cdx.json
    holds $file '.bomFormat == "CycloneDX" and (.components | length) > 50'
    holds $file '[.components[].purl | select(startswith("pkg:deb/"))] | length == 2 and all(contains("?arch="))'
    holds $file '.components[] | select(.name == "libc6") | .version == $v' --arg v "$(dpkg-query -W -f '${Version}' libc6)"
    [ -s root/usr/share/doc/libc6/copyright ] && [ -s root/usr/share/doc/roadtrain/copyright ] || fail 'no licences'
    grep -qx "Version: $(dpkg-deb -f debs/roadtrain_*.deb Version)" root/var/lib/dpkg/status.d/roadtrain
    holds "$(image_blob config)" '.config | .User == "65532:65532" and .Entrypoint == ["/usr/bin/roadtrain"] and
        .Labels["org.opencontainers.image.licenses"] == "Apache-2.0"'
    refused_with 1 'run `make deb`' env DEBS="$work/none" "$top/scripts/image.sh" "$work/none"
    cp debs/roadtrain_*.deb "debs/roadtrain_99_$(dpkg --print-architecture).deb"
    refused_with 1 'more than one package' env DEBS="$work/debs" "$top/scripts/image.sh" "$work/none"
}

# image_user: the user without privileges that containers run as, and its folder data
image_user() {
    become_user
    "${as_user[@]}" unshare --user true 2>/dev/null || skip 'no user namespaces here'
    mkdir data
    # crun refuses a machine with controllers of both versions of cgroups; it gets the second one alone here.
    [ ! -e /sys/fs/cgroup/unified ] || mount -t cgroup2 cgroup /sys/fs/cgroup
}

# image_config: what compose.yaml mounts, at a free port; the names of `serve` for other functions
image_config() {
    port=$(free_port) nqn=nqn.2025-01.io.example:disk
    sed "s/^port = .*/port = $port/" "$top/packaging/container/serve.toml" >serve.toml
    cp "$top/packaging/container/seccomp.json" seccomp.json
    jq 'del(.defaultErrnoRet) | .defaultAction = "SCMP_ACT_ALLOW" | .syscalls = [{names: ["io_uring_setup", "io_uring_enter", "io_uring_register"],
        action: "SCMP_ACT_ERRNO", errnoRet: 1}]' seccomp.json >no_rings.json
    chmod 644 serve.toml seccomp.json no_rings.json
}

# image_is_used: this machine's host writes the container's disk, and reads it
image_is_used() {
    attach
    [ -e random ] || dd if=/dev/urandom of=random bs=1M count=16 status=none
    nbdcopy --flush random "$uri"
    "$ROADTRAIN" detach --all
    attach
    image_is_read
}

# image_is_read: what was written is there; ends the attachment
image_is_read() {
    nbdcopy "$uri" back
    cmp -n $((16 << 20)) random back || fail 'other data'
    "$ROADTRAIN" detach --all
    ended "$attached" 20
}

# image_is_confined PID: the process is that user's, and has no rights but its own
image_is_confined() {
    local status=/proc/$1/status
    awk '/^Uid:/ {exit !($2 >= 1000 && $2 == $3 && $2 == $4)}' "$status" || fail "$(grep Uid "$status")"
    ! grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb):' "$status" | grep -v '0000000000000000' || fail 'it has capabilities'
    grep -qE '^NoNewPrivs:\s1' "$status" && grep -qE '^Seccomp:\s2' "$status" || fail 'not confined'
}

# container_pid: the process that listens at $port
container_pid() { ss -Hltnp "sport = :$port" | sed -n 's/.*"roadtrain",pid=\([0-9]*\).*/\1/p'; }

# crun_bundle: the image as a bundle of OCI's runtime specification, for that user, whose container has its user 65532
crun_bundle() {
    mkdir -p bundle/rootfs
    chown -R $user:$user bundle
    chown $((600000 + 65531)):$((600000 + 65531)) data
    "${as_user[@]}" tar -xzf "$(image_blob layer)" --no-same-owner -C bundle/rootfs
    "${as_user[@]}" touch bundle/rootfs/etc/roadtrain/serve.toml
    (cd bundle && "${as_user[@]}" crun spec --rootless)
    jq --slurpfile image "$(image_blob config)" --slurpfile seccomp seccomp.json --arg work "$work" '
        .process.args = $image[0].config.Entrypoint + $image[0].config.Cmd
        | .process.user = {uid: 65532, gid: 65532} | .process.env = $image[0].config.Env
        | .linux.uidMappings += [{containerID: 1, hostID: 600000, size: 65536}] | .linux.gidMappings = .linux.uidMappings
        | .process.cwd = $image[0].config.WorkingDir | .process.terminal = false | .process.noNewPrivileges = true
        | .process.capabilities |= map_values([]) | .process.rlimits = [{type: "RLIMIT_MEMLOCK", soft: 262144, hard: 262144}]
        | .root = {path: "rootfs", readonly: true} | .linux.seccomp = $seccomp[0]
        | .linux.namespaces |= map(select(.type != "network"))
        | .mounts += [
            {destination: "/tmp", type: "tmpfs", source: "tmpfs", options: ["nosuid", "nodev", "mode=1777"]},
            {destination: "/var/lib/roadtrain", type: "bind", source: "\($work)/data", options: ["rbind", "rw"]},
            {destination: "/etc/roadtrain/serve.toml", type: "bind", source: "\($work)/serve.toml", options: ["bind", "ro"]}
        ]' bundle/config.json >config.json
    cp config.json bundle/config.json
}

test_image_runs_by_crun_without_privileges() {
    local as_user user status
    command -v crun >/dev/null || skip 'no crun: scripts/setup.sh containers'
    image_user
    image_config
    image_made
    crun_bundle
    local crun=("${as_user[@]}" crun --root "$work/home/run/crun" --cgroup-manager disabled)
    background crun.log "${crun[@]}" run --bundle bundle target
    until_line crun.log '^ready' "$pid"
    image_is_confined "$(container_pid)"
    image_is_used
    "${crun[@]}" kill target TERM
    ended "$pid" 30
    # Where rings are forbidden it says so.
    jq --slurpfile none no_rings.json '.linux.seccomp = $none[0]' config.json >bundle/config.json
    status=0
    "${crun[@]}" run --bundle bundle target >refused.log 2>&1 || status=$?
    [ $status = 1 ] && grep -q io_uring refused.log || fail "status $status: $(cat refused.log)"
}

# podman_home: podman for that user, without the machine's cgroups and journal
podman_home() {
    command -v podman >/dev/null || skip 'no podman: scripts/setup.sh containers'
    mkdir -p home/.config/containers
    cat >home/.config/containers/containers.conf <<'TOML'
[containers]
cgroups = "disabled"
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
TOML
    chown -R $user:$user home/.config
    podman=("${as_user[@]}" podman)
    "${podman[@]}" load --input "$(echo image/roadtrain_*.tar)" >load.log 2>&1 || fail "$(cat load.log)"
    name=$(sed -n 's/^Loaded image: //p' load.log)
    [ "$name" = "$(sed -n 's/^ *image: //p' "$top/packaging/container/compose.yaml")" ] || fail "compose.yaml names another image: $name"
    # shellcheck disable=SC2064
    trap "$(printf '%q ' "${podman[@]}") rm --all --force --time 5 >/dev/null 2>&1; $(printf '%q ' "${podman[@]}") system migrate >/dev/null 2>&1" EXIT
}

# page_command FIRST: the command of docs/guide/containers.md that begins so, in one line
page_command() {
    awk -v first="    $1" 'index($0, first) == 1 {here = 1} here {gsub(/^ +/, ""); more = sub(/\\$/, ""); printf "%s", $0
        if (!more) exit}' "$top/docs/guide/containers.md" | grep . || fail "the page has no command $1"
}

# container_ready: the container `target` serves
container_ready() {
    local n
    for n in $(seq 200); do
        ! "${podman[@]}" logs target 2>&1 | grep -q '^ready' || return 0
        sleep 0.1
    done
    fail "not ready: $("${podman[@]}" logs target 2>&1)"
}

# The commands of docs/guide/containers.md.
test_image_runs_by_podman_without_privileges() {
    local as_user user program podman name first status
    image_user
    image_config
    image_made
    podman_home
    cp serve.toml seccomp.json no_rings.json home
    first=$(page_command 'podman run --detach')
    in_shell() { (cd home && "${as_user[@]}" bash -euc "$1"); }
    in_shell "$first"
    container_ready
    image_is_confined "$(container_pid)"
    image_is_used
    in_shell "$(page_command 'podman exec target')" >list.log
    grep -q "$nqn.* 1 GiB" list.log || fail "$(cat list.log)"
    "${podman[@]}" exec target roadtrain bench -a 127.0.0.1 -s "$port" -n $nqn --rw randread --bs 4k --seconds 1
    in_shell "$(page_command 'podman stop')"
    [ "$("${podman[@]}" inspect --format '{{.State.ExitCode}}' target)" = 0 ] || fail "$("${podman[@]}" logs target)"
    # Another container finds the disk in the volume.
    "${podman[@]}" rm target
    in_shell "${first/ --network/ --health-cmd \'[\"\/usr\/bin\/roadtrain\",\"status\",\"target0\"]\' --network}"
    container_ready
    "${podman[@]}" healthcheck run target || fail 'not healthy'
    attach
    image_is_read
    # So does one that was killed and is started again; its host has waited.
    attach
    "${podman[@]}" kill --signal KILL target
    "${podman[@]}" start target
    eventually 60 "${podman[@]}" healthcheck run target
    image_is_read
    "${podman[@]}" stop --time 60 target
    "${podman[@]}" rm target
    # Where rings are forbidden it says so, and so does `doctor`.
    status=0
    in_shell "${first/seccomp=seccomp.json/seccomp=no_rings.json}" || status=$?
    eventually 20 eval '"${podman[@]}" inspect --format "{{.State.Status}}" target | grep -q exited'
    "${podman[@]}" logs target 2>&1 | grep -q io_uring || fail "$("${podman[@]}" logs target 2>&1)"
    status=0
    "${podman[@]}" run --rm --network host --security-opt "seccomp=$work/home/no_rings.json" "$name" doctor >doctor.log || status=$?
    [ $status = 1 ] && grep -q 'let the seccomp profile of the container' doctor.log || fail "$(cat doctor.log)"
    # Without a configuration it says which file is missing.
    status=0
    "${podman[@]}" run --rm --network host "$name" >missing.log 2>&1 || status=$?
    [ $status = 2 ] && grep -q /etc/roadtrain/serve.toml missing.log || fail "status $status: $(cat missing.log)"
}

# Docker's program for compose files, and podman in the place of Docker.
test_image_runs_by_the_compose_file() {
    local as_user user program podman name service
    command -v docker-compose >/dev/null || skip 'no docker-compose: scripts/setup.sh containers'
    image_user
    image_config
    image_made
    podman_home
    mkdir home/target
    cp serve.toml seccomp.json "$top/packaging/container/compose.yaml" home/target
    sed -i "s|^\[containers\]|&\nseccomp_profile = \"$work/home/target/seccomp.json\"|" home/.config/containers/containers.conf
    background podman.log "${podman[@]}" system service --time 0 "unix://$work/home/run/podman.sock"
    service=$pid
    eventually 20 test -S home/run/podman.sock
    compose() { (cd home/target && "${as_user[@]}" DOCKER_HOST="unix://$work/home/run/podman.sock" docker-compose "$@"); }
    compose config --quiet
    # The service of podman takes a profile from its own configuration only.
    sed -i '/seccomp:/d' home/target/compose.yaml
    compose up -d
    eventually 60 eval '[ -n "$(container_pid)" ]'
    image_is_confined "$(container_pid)"
    image_is_used
    compose down
    [ -z "$(container_pid)" ] || fail 'it goes on'
    kill -TERM "$service"
}
