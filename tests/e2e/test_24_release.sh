# shellcheck shell=bash
# The release script: what it writes. Building is a part of its own (scripts/release.sh build).

test_release_is_prepared() {
    local script
    git clone --quiet --no-hardlinks "$top" sources 2>clone.log || skip "no clone of the sources: $(cat clone.log)"
    [ -e sources/Cargo.toml ] || fail "no clone"
    git -C sources config user.name e2e
    git -C sources config user.email e2e@example.org
    script=sources/scripts/release.sh
    # What is not committed yet is tested, too.
    cp "$top/scripts/release.sh" "$script"
    sed -i -E 's/^## (Unreleased|[0-9.]+, unreleased)$/## Unreleased/' sources/CHANGELOG.md
    echo >>sources/README.md
    refused_with 1 'not committed' "$script" prepare 9.8.7
    git -C sources commit --quiet --all --message 'a change'
    refused_with 1 'usage' "$script" prepare 9.8
    refused_with 1 'prepare it first' "$script" build 9.8.7
    DATE=2031-02-03 "$script" prepare 9.8.7 >release.log 2>&1 || fail "$(cat release.log)"
    cd sources || fail 'no clone'
    [ "$(git describe)" = v9.8.7 ] || fail "$(git describe)"
    [ -z "$(git status --porcelain)" ] || fail "$(git status)"
    grep -A2 '^## Unreleased$' CHANGELOG.md | grep -qx '## 9.8.7, 2031-02-03' || fail "$(head -n 20 CHANGELOG.md)"
    grep -qx 'version = "9.8.7"' Cargo.toml || fail 'Cargo.toml'
    [ "$(dpkg-parsechangelog -l packaging/deb/changelog -S Version)" = 9.8.7-1 ] || fail "$(head packaging/deb/changelog)"
    grep -q '9.8.7' SECURITY.md || fail "$(cat SECURITY.md)"
    cd "$work" || fail "no $work"
    refused_with 1 'exists already' "$script" prepare 9.8.7
}
