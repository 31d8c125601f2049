#!/bin/bash
# Builds the engine of fio: target/fio/roadtrain-fio.so, and libroadtrain.so.0 beside it.
#   LIBROADTRAIN  the library [target/release/libroadtrain.so]
#   FIO_SRC       fio's sources, of the version that is installed; without it Debian's source package is fetched
# fio's headers are used where they are; nothing of them is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

library=${LIBROADTRAIN:-target/release/libroadtrain.so}
out=target/fio
[ -e "$library" ] || { echo "fio-engine: no $library: cargo build --release --package roadtrain-capi" >&2; exit 1; }
version=$(dpkg-query -W -f '${source:Version}' fio 2>/dev/null) || version=
[ -n "$version" ] || [ -n "${FIO_SRC-}" ] || { echo "fio-engine: install fio, or set FIO_SRC" >&2; exit 1; }

# fetch FOLDER: Debian's source package of the installed version, with lists of its own: the system's stay as they are
fetch() {
    local apt suite mirror
    # shellcheck source=/dev/null
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mkdir -p "$1/lists/partial" "$1/cache/archives/partial" "$1/source"
    # Where the system's packages come from.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v -- -security | head -n 1)
    echo "deb-src $mirror $suite main" >"$1/sources.list"
    apt=(-qq -o "Dir::Etc::SourceList=$1/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$1/lists" -o "Dir::Cache=$1/cache" -o APT::Sandbox::User=root)
    apt-get "${apt[@]}" update
    (cd "$1/source" && apt-get "${apt[@]}" source --download-only "fio=$version" >/dev/null)
    mkdir -p "$1/fio"
    tar -xf "$(find "$1/source" -name '*.orig.tar.*' ! -name '*.asc')" -C "$1/fio" --strip-components=1
}

source=${FIO_SRC-}
if [ -z "$source" ]; then
    source=target/fio-source/$version/fio
    if [ ! -e "$source/fio.h" ]; then
        place=$(mktemp -d)
        trap 'rm -rf "$place"' EXIT
        fetch "$place"
        mkdir -p "$(dirname "$source")"
        mv "$place/fio" "$source"
    fi
fi
# What the compiler's headers have, for fio's own.
[ -e "$source/config-host.h" ] || (cd "$source" && ./configure --disable-native >configure.log 2>&1)
mkdir -p "$out"
cp "$library" "$out/libroadtrain.so.0"
gcc -O2 -Wall -fPIC -shared -D_GNU_SOURCE -include "$source/config-host.h" -I"$source" -Icrates/capi/include \
    -o "$out/roadtrain-fio.so" crates/capi/fio/roadtrain-fio.c "$out/libroadtrain.so.0" -Wl,-rpath,'$ORIGIN'
echo "fio-engine: $out/roadtrain-fio.so for fio ${version:-of $source}"
