#!/bin/bash
# What to run before a push: format, clippy, unit tests of what has changed and of what depends on it.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings
scripts/unit.sh check
