#!/bin/bash
# Makes Debian packages in target/debian: deb.sh [FOLDER].
#   ROADTRAIN   the program [target/release/roadtrain]
#   LIBROADTRAIN the library [target/release/libroadtrain.so]; without it there are no packages of it
#   VERSION     the packages' version [the first of packaging/deb/changelog]
#   COMPRESSION xz, or none, which tests use to save time [xz]
# The same sources, program and SOURCE_DATE_EPOCH (the last commit's time if it is not set) give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-target/debian}
program=${ROADTRAIN:-target/release/roadtrain}
library=${LIBROADTRAIN:-target/release/libroadtrain.so}
version=${VERSION:-$(dpkg-parsechangelog -l packaging/deb/changelog -S Version)}
arch=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export SOURCE_DATE_EPOCH
export LC_ALL=C TZ=UTC0
umask 022
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# put MODE FILE PLACE: PLACE may name another file
put() { install -D -m "$1" "$2" "$root$3"; }

# packed FILE PLACE: compressed, as documents and man pages are
packed() {
    install -d "$(dirname "$root$2")"
    gzip -9n <"$1" >"$root$2"
}

# documents PACKAGE
documents() {
    put 644 packaging/deb/copyright "/usr/share/doc/$1/copyright"
    packed packaging/deb/changelog "/usr/share/doc/$1/changelog.Debian.gz"
    put 644 packaging/deb/overrides "/usr/share/lintian/overrides/$1"
    sed -i "s/@package@/$1/" "$root/usr/share/lintian/overrides/$1"
}

# libraries FILE...: what the package has to depend on for them
libraries() {
    (
        mkdir -p "$stage/shlibs/debian" && cd "$stage/shlibs" && : >debian/control
        dpkg-shlibdeps -O --ignore-missing-info "$@" 2>/dev/null | sed -n 's/^shlibs:Depends=//p'
    )
}

# finish PACKAGE SECTION DEPENDS SUMMARY: the description is read
finish() {
    local size
    size=$(du -k -s --apparent-size --exclude=DEBIAN "$root" | cut -f1)
    mkdir -p "$root/DEBIAN"
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\n' "$1" "$version" "$arch"
        printf 'Maintainer: Roadtrain developers <roadtrain@example.org>\nInstalled-Size: %s\n' "$size"
        printf 'Depends: %s\nSection: %s\nPriority: optional\nDescription: %s\n' "$3" "$2" "$4"
        sed 's/^/ /'
    } >"$root/DEBIAN/control"
    (cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\n' | sort | xargs -d '\n' md5sum >DEBIAN/md5sums)
    find "$root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    mkdir -p "$out"
    dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$root" "$out/${1}_${version}_${arch}.deb"
}

roadtrain_package() {
    root=$stage/roadtrain
    put 755 "$program" /usr/bin/roadtrain
    strip --strip-unneeded --remove-section=.comment "$root/usr/bin/roadtrain"
    "$program" man "$stage/man"
    "$program" completions --dir "$stage/completions"
    for page in "$stage"/man/*.1; do packed "$page" "/usr/share/man/man1/${page##*/}.gz"; done
    put 644 "$stage/completions/roadtrain.bash" /usr/share/bash-completion/completions/roadtrain
    put 644 "$stage/completions/_roadtrain" /usr/share/zsh/vendor-completions/_roadtrain
    put 644 "$stage/completions/roadtrain.fish" /usr/share/fish/vendor_completions.d/roadtrain.fish
    for unit in systemd/*.service; do
        put 644 "$unit" "/lib/systemd/system/${unit##*/}"
        sed -i 's|/usr/local|/usr|' "$root/lib/systemd/system/${unit##*/}"
    done
    put 644 packaging/deb/sysusers.conf /usr/lib/sysusers.d/roadtrain.conf
    put 644 packaging/deb/tmpfiles.conf /usr/lib/tmpfiles.d/roadtrain.conf
    put 644 packaging/serve.toml /etc/roadtrain/serve.toml
    install -d "$root/etc/roadtrain/serve" "$root/etc/roadtrain/attach"
    documents roadtrain
    packed CHANGELOG.md /usr/share/doc/roadtrain/changelog.gz
    for file in examples/serve.toml packaging/deb/examples/*; do
        put 644 "$file" "/usr/share/doc/roadtrain/examples/${file##*/}"
    done
    [ ! -e target/sbom/roadtrain.cdx.json ] || packed target/sbom/roadtrain.cdx.json /usr/share/doc/roadtrain/roadtrain.cdx.json.gz
    mkdir -p "$root/DEBIAN"
    install -m 755 packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$root/DEBIAN"
    echo /etc/roadtrain/serve.toml >"$root/DEBIAN/conffiles"
    finish roadtrain admin "$(libraries "$root/usr/bin/roadtrain"), systemd | systemd-standalone-sysusers" \
        'remote block storage over NVMe/TCP in user space' <<'TEXT'
Exports files, block devices, memory and images of Ceph clusters to any
NVMe/TCP host, and shows the namespaces of any NVMe/TCP target as local block
devices (ublk, FUSE, NBD, vhost-user), without a kernel module of its own.
.
The service roadtrain-serve runs a target as a user without privileges; it is
not started by being installed. "roadtrain doctor" looks at the machine.
TEXT
}

library_package() {
    root=$stage/libroadtrain0
    local file=/usr/lib/$multiarch/libroadtrain.so.0
    put 644 "$library" "$file"
    strip --strip-unneeded --remove-section=.comment "$root$file"
    documents libroadtrain0
    mkdir -p "$root/DEBIAN"
    echo 'libroadtrain 0 libroadtrain0' >"$root/DEBIAN/shlibs"
    echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
    finish libroadtrain0 libs "$(libraries "$root$file")" 'NVMe/TCP host for programs - library' <<'TEXT'
Programs open namespaces of NVMe/TCP targets, and read, write, flush and
discard, on a ring of submissions and completions, in user space.
TEXT
}

development_package() {
    root=$stage/libroadtrain-dev
    put 644 crates/capi/include/roadtrain.h /usr/include/roadtrain.h
    install -d "$root/usr/lib/$multiarch/pkgconfig"
    ln -s libroadtrain.so.0 "$root/usr/lib/$multiarch/libroadtrain.so"
    sed -e "s|@libdir@|/usr/lib/$multiarch|" -e "s|@version@|${version%-*}|" crates/capi/roadtrain.pc.in \
        >"$root/usr/lib/$multiarch/pkgconfig/roadtrain.pc"
    documents libroadtrain-dev
    finish libroadtrain-dev libdevel "libroadtrain0 (= $version)" 'NVMe/TCP host for programs - headers' <<'TEXT'
Programs open namespaces of NVMe/TCP targets, and read, write, flush and
discard, on a ring of submissions and completions, in user space.
.
This package has the header, and what linking needs.
TEXT
}

multiarch=$(dpkg-architecture -q DEB_HOST_MULTIARCH 2>/dev/null || gcc -print-multiarch)
roadtrain_package
if [ -e "$library" ]; then
    library_package
    development_package
fi
