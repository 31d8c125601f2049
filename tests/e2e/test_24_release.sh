# shellcheck shell=bash
# The release script: what it writes. Building is a part of its own (scripts/release.sh build).

test_release_is_prepared() {
    local script
    git clone --quiet --no-hardlinks "$top" sources 2>clone.log || skip "no clone of the sources: $(cat clone.log)"
    cd sources || fail 'no clone'
    git config user.name e2e && git config user.email e2e@example.org
    script=$top/scripts/release.sh
    cp "$script" scripts/release.sh
    git diff --quiet || git commit --quiet --all --message 'the script of the working tree'
    sed -i -E 's/^## (Unreleased|[0-9.]+, unreleased)$/## Unreleased/' CHANGELOG.md
    refused_with 1 'not committed' scripts/release.sh prepare 9.8.7
    git commit --quiet --all --allow-empty --message 'a change'
    refused_with 1 'usage' scripts/release.sh prepare 9.8
    refused_with 1 'prepare it first' scripts/release.sh build 9.8.7
    DATE=2031-02-03 scripts/release.sh prepare 9.8.7 >release.log 2>&1 || fail "$(cat release.log)"
    [ "$(git describe)" = v9.8.7 ] || fail "$(git describe)"
    [ -z "$(git status --porcelain --untracked-files=no)" ] || fail "$(git status)"
    grep -A2 '^## Unreleased$' CHANGELOG.md | grep -qx '## 9.8.7, 2031-02-03' || fail "$(head -n 20 CHANGELOG.md)"
    grep -qx 'version = "9.8.7"' Cargo.toml || fail 'Cargo.toml'
    [ "$(dpkg-parsechangelog -l packaging/deb/changelog -S Version)" = 9.8.7-1 ] || fail "$(head packaging/deb/changelog)"
    grep -q '9.8.7' SECURITY.md || fail "$(cat SECURITY.md)"
    refused_with 1 'is there already' scripts/release.sh prepare 9.8.7
}
