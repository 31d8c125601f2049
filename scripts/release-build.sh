#!/bin/bash
# Builds what is released, in target/package/dist, so that it is the same bytes wherever the sources lie:
# release-build.sh [PACKAGE...]
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- roadtrain roadtrain-capi
packages=()
for package; do packages+=(--package "$package"); done
cargo_home=${CARGO_HOME:-$HOME/.cargo}
# Instead of folders of this machine, which debug information, panics and asserts would name.
export RUSTFLAGS="--remap-path-prefix=$PWD=/roadtrain --remap-path-prefix=$cargo_home=/cargo"
export CFLAGS="-ffile-prefix-map=$PWD=/roadtrain -ffile-prefix-map=$cargo_home=/cargo"
export CARGO_TARGET_DIR=$PWD/target/package CARGO_INCREMENTAL=0
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
cargo build --profile dist --locked "${packages[@]}"
