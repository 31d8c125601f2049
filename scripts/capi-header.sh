#!/bin/bash
# Makes crates/capi/include/roadtrain.h anew, or says whether it is what it would be: capi-header.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."

header=crates/capi/include/roadtrain.h
made=$(mktemp)
trap 'rm -f "$made"' EXIT
cbindgen --quiet --config crates/capi/cbindgen.toml crates/capi >"$made"
if [ "${1-}" = --check ]; then
    diff -u "$header" "$made"
else
    cp "$made" "$header"
fi
