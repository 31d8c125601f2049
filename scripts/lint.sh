#!/bin/bash
# All checks that need no run of the program: format, clippy, layers, sizes, documents, dependencies, shell.
# lint.sh all: what is seldom built as well: the product without its features, documentation and its examples.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { echo "== $*"; }

everyday() {
    step format
    cargo fmt --all --check
    cargo fmt --manifest-path fuzz/Cargo.toml --check
    cargo fmt --manifest-path csi/Cargo.toml --check
    step clippy
    cargo clippy --workspace --all-targets --quiet -- -D warnings
    for chore in layers circles size names conformance docs suites; do
        step $chore
        cargo xtask $chore
    done
    step dependencies
    scripts/deny.sh
    step shell
    # 2034, 2154: the tests share variables with their harness, file by file.
    git ls-files '*.sh' .ci/run | xargs shellcheck --severity=warning --exclude=SC2034,SC2154
    # A suite's files are read into one shell: the later of two functions of one name would be everybody's.
    for suite in e2e vm csi; do
        twice=$(git ls-files "tests/lib/*.sh" "tests/$suite/run-*.sh" "tests/$suite/test_*.sh" |
            xargs grep -ho '^[a-z0-9_]*()' | sort | uniq -d)
        [ -z "$twice" ] || { echo "$suite: defined twice: $twice" >&2; exit 1; }
    done
}

seldom() {
    step 'clippy without Ethernet and Ceph'
    # Front has nothing of them; the engines are checked on the way.
    cargo clippy -p roadtrain --no-default-features --quiet -- -D warnings
    cargo test -p roadtrain --no-default-features --features rbd --lib --quiet args::
    step documentation
    RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items --quiet
    cargo test --workspace --doc --quiet
}

everyday
case ${1-} in
all) seldom ;;
esac
