#!/bin/bash
# Makes an OCI image of the Debian package of the program, in target/image: image.sh [FOLDER]. It needs no network and
# no container runtime.
#   DEBS        the folder with the package [target/debian]
#   FOLDER/oci  the image as OCI's image layout, and as an archive for `podman load` and `docker load` beside it
# The image has the program, the libraries that it loads with their licences, the bill of materials, a user, and no shell.
# The libraries are this machine's. The same package, libraries and SOURCE_DATE_EPOCH (the last commit's time if it is not
# set) give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

debs=${DEBS:-target/debian}
out=${1:-target/image}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export SOURCE_DATE_EPOCH
export LC_ALL=C TZ=UTC0
umask 022
# Number of the user and of its group, which no user of a machine has.
user=65532
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root package=$stage/package

die() { echo "image: $*" >&2; exit 1; }

# put MODE FILE PLACE
put() { install -D -m "$1" "$2" "$root$3"; }

# packed FILE OPTIONS of tar...: an archive whose bytes depend on names, modes and contents only
packed() {
    tar --file "$1" --format gnu --sort name --mtime "@$SOURCE_DATE_EPOCH" --owner 0 --group 0 --numeric-owner "${@:2}"
}

# The package's program and documents, and empty places.
program() {
    local place
    for place in dev etc/roadtrain proc run sys usr/bin usr/lib var/lib/dpkg/status.d; do mkdir -p "$root/$place"; done
    install -d -m 1777 "$root/tmp"
    install -d -m 750 "$root/var/lib/roadtrain"
    for place in bin lib; do ln -s "usr/$place" "$root/$place"; done
    put 755 "$package/usr/bin/roadtrain" /usr/bin/roadtrain
    put 644 "$package/usr/share/doc/roadtrain/copyright" /usr/share/doc/roadtrain/copyright
    dpkg-deb -f "$deb" Package Version Architecture Maintainer Description >"$root/var/lib/dpkg/status.d/roadtrain"
}

# library FILE: a shared library of a package that ours depends on, with that package's licence and entries in lists
library() {
    local name
    name=$(dpkg-query -S "$1" 2>/dev/null || dpkg-query -S "/usr$1" 2>/dev/null) || die "no package has $1"
    name=${name%%:*}
    case ", $depends," in
    *", $name,"* | *", $name "*) ;;
    *) die "$1 is of the package $name, on which ${deb##*/} does not depend" ;;
    esac
    case $1 in
    */ld-linux*) put 755 "$1" "$1" ;;
    *) put 644 "$1" "$1" ;;
    esac
    [ ! -e "$root/var/lib/dpkg/status.d/$name" ] || return 0
    [ -e "/usr/share/doc/$name/copyright" ] || die "/usr/share/doc/$name/copyright is missing: reinstall $name"
    put 644 "/usr/share/doc/$name/copyright" "/usr/share/doc/$name/copyright"
    # shellcheck disable=SC2016
    dpkg-query -W -f 'Package: ${Package}\nVersion: ${Version}\nArchitecture: ${Architecture}
Source: ${source:Package} (${source:Version})\nMaintainer: ${Maintainer}\nDescription: ${binary:Summary}\n' "$name" \
        >"$root/var/lib/dpkg/status.d/$name"
    # shellcheck disable=SC2016
    dpkg-query -W -f '${Package} ${Version} ${Architecture}\n' "$name" >>"$stage/libraries"
}

# What the program loads. Images of Ceph need librbd, which is not among it.
libraries() {
    local file files
    files=$(ldd "$root/usr/bin/roadtrain" | grep -o '/[^ ]*') || die 'this machine cannot run the program of the package'
    case $files in */lib64/*) ln -s usr/lib64 "$root/lib64" && mkdir "$root/usr/lib64" ;; esac
    for file in $files; do library "${file#/usr}"; done
    jq --rawfile lines "$stage/libraries" --arg distribution "$(. /etc/os-release && echo "$ID")" '
        .components += [$lines | split("\n")[] | select(. != "") | split(" ")
            | "pkg:deb/\($distribution)/\(.[0])@\(.[1] | @uri)?arch=\(.[2])" as $url
            | {type: "library", "bom-ref": $url, name: .[0], version: .[1], purl: $url}]' \
        "$bill" >"$root/usr/share/doc/roadtrain/roadtrain.cdx.json"
}

# Licences that the packages' copyright files name, and no more.
licences() {
    local file
    for file in $(grep -rohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$root/usr/share/doc" | sort -u); do
        [ -e "$file" ] || die "$file is missing: reinstall base-files"
        put 644 "$file" "$file"
    done
}

settings() {
    printf '%s\n' 'root:x:0:0:root:/:/usr/sbin/nologin' \
        "roadtrain:x:$user:$user:Roadtrain:/var/lib/roadtrain:/usr/sbin/nologin" >"$root/etc/passwd"
    printf '%s\n' root:x:0: "roadtrain:x:$user:" >"$root/etc/group"
    echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
    # Scanners of images find by it which lists of vulnerabilities the libraries have.
    put 644 /etc/os-release /usr/lib/os-release
    ln -s ../usr/lib/os-release "$root/etc/os-release"
}

# blob FILE: moves it to the others; prints its digest
blob() {
    local digest
    digest=$(sha256sum <"$1" | cut -d' ' -f1)
    mv "$1" "$out/oci/blobs/sha256/$digest"
    echo "sha256:$digest"
}

# descriptor MEDIA_TYPE FILE: of what becomes a blob
descriptor() {
    local size
    size=$(stat -c %s "$2")
    jq -nc --arg type "$1" --arg digest "$(blob "$2")" --argjson size "$size" \
        '{mediaType: $type, digest: $digest, size: $size}'
}

# labels: what catalogues show of the image
labels() {
    jq -nc --arg version "$version" --arg revision "$(git rev-parse HEAD 2>/dev/null || true)" '{
        title: "roadtrain", description: "NVMe/TCP target and host in user space", version: $version,
        licenses: "Apache-2.0", revision: $revision, created: (env.SOURCE_DATE_EPOCH | tonumber | todate)
    } | with_entries(select(.value != "") | .key |= "org.opencontainers.image.\(.)")'
}

# config: how the image is started. Health checks are Docker's; others ignore them.
config() {
    jq -nc --arg architecture "$1" --arg user "$user:$user" --arg diff "$2" --argjson labels "$(labels)" '
        (env.SOURCE_DATE_EPOCH | tonumber | todate) as $created | {
        created: $created, architecture: $architecture, os: "linux",
        config: {User: $user, ExposedPorts: {"4420/tcp": {}}, Env: ["PATH=/usr/bin"],
            Entrypoint: ["/usr/bin/roadtrain"], Cmd: ["serve", "--config", "/etc/roadtrain/serve.toml"],
            Volumes: {"/var/lib/roadtrain": {}}, WorkingDir: "/var/lib/roadtrain", Labels: $labels, StopSignal: "SIGTERM",
            Healthcheck: {Test: ["CMD", "/usr/bin/roadtrain", "status", "target0"], Interval: 30e9, Timeout: 10e9, Retries: 3}},
        rootfs: {type: "layers", diff_ids: [$diff]},
        history: [{created: $created, created_by: "scripts/image.sh"}]}'
}

# image ARCHITECTURE: the layout of $root
image() {
    local oci=application/vnd.oci.image name=localhost/roadtrain:${version%-*} layer configuration
    rm -rf "$out"
    mkdir -p "$out/oci/blobs/sha256"
    (cd "$root" && packed "$stage/layer" --create --exclude var/lib/roadtrain -- * &&
        packed "$stage/layer" --append --owner $user --group $user var/lib/roadtrain)
    config "$1" "sha256:$(sha256sum <"$stage/layer" | cut -d' ' -f1)" >"$stage/config"
    gzip -9n "$stage/layer"
    layer=$(descriptor $oci.layer.v1.tar+gzip "$stage/layer.gz")
    configuration=$(descriptor $oci.config.v1+json "$stage/config")
    jq -nc --arg type $oci.manifest.v1+json --argjson config "$configuration" --argjson layer "$layer" \
        --argjson labels "$(labels)" \
        '{schemaVersion: 2, mediaType: $type, config: $config, layers: [$layer], annotations: $labels}' >"$stage/manifest"
    descriptor $oci.manifest.v1+json "$stage/manifest" | jq -c --arg type $oci.index.v1+json --arg name "$name" \
        --arg architecture "$1" '{schemaVersion: 2, mediaType: $type, manifests: [. + {
            platform: {architecture: $architecture, os: "linux"},
            annotations: {"io.containerd.image.name": $name, "org.opencontainers.image.ref.name": $name}}]}' \
        >"$out/oci/index.json"
    echo '{"imageLayoutVersion":"1.0.0"}' >"$out/oci/oci-layout"
    # For `docker load` before Docker 25, which does not read the layout.
    jq -nc --arg name "$name" --argjson config "$configuration" --argjson layer "$layer" '
        def file: .digest | "blobs/\(sub(":"; "/"))"; [{Config: ($config | file), RepoTags: [$name], Layers: [$layer | file]}]' \
        >"$out/oci/manifest.json"
    (cd "$out/oci" && packed "../roadtrain_${version}_$1.tar" --create -- *)
    echo "image: $name in $out/oci and $out/roadtrain_${version}_$1.tar"
}

found=("$debs"/roadtrain_*_"$(dpkg --print-architecture)".deb)
[ -e "${found[0]}" ] || die "no package in $debs: run \`make deb\`"
[ ${#found[@]} = 1 ] || die "more than one package in $debs: ${found[*]##*/}: remove the old ones"
deb=${found[0]}
version=$(dpkg-deb -f "$deb" Version)
depends=$(dpkg-deb -f "$deb" Depends)
dpkg-deb -x "$deb" "$package"
bill=$stage/bill
gzip -dc "$package/usr/share/doc/roadtrain/roadtrain.cdx.json.gz" >"$bill" 2>/dev/null ||
    die "${deb##*/} has no bill of materials: run \`make deb\`"
case $(dpkg --print-architecture) in
amd64 | arm64) architecture=$(dpkg --print-architecture) ;;
*) die "no image for $(dpkg --print-architecture)" ;;
esac
program
libraries
licences
settings
image "$architecture"
