#!/bin/bash
# Makes a release of the last commit: release.sh prepare|build VERSION.
#   prepare  version and date in Cargo.toml, CHANGELOG.md, SECURITY.md and the Debian changelog; a commit and the tag vVERSION
#   build    packages, bill of materials and SHA256SUMS of the tag in target/release-VERSION; the program is built twice, in
#            two folders, and must have the same bytes
# DATE=YYYY-MM-DD is the day of the release [today]. Publishing and signing are by hand: docs/internals/release.md.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "release: $*" >&2; exit 1; }

step=${1-} version=${2-} date=${DATE:-$(date -u +%F)}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "usage: release.sh prepare|build VERSION, such as 0.2.0"

prepare() {
    [ -z "$(git status --porcelain)" ] || die 'there are changes that are not committed'
    ! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || die "the tag v$version exists already"
    # Its part of the changelog gets its date, and a new part comes above it.
    grep -qE "^## (Unreleased|$version, unreleased)\$" CHANGELOG.md || die 'CHANGELOG.md has no "## Unreleased"'
    sed -i -E "s/^## (Unreleased|$version, unreleased)\$/## Unreleased\n\n## $version, $date/" CHANGELOG.md
    sed -i -E "0,/^version = \"[^\"]*\"/s//version = \"$version\"/" Cargo.toml
    cargo update --quiet --workspace --offline
    sed -i -E "/^\| \`[0-9.]+\` \| /d; s/^(\| \`main\` \| yes \|)\$/\1\n| \`$version\` | yes |/" SECURITY.md
    debian_changelog
    git commit --quiet --all --message "release: $version"
    git tag --annotate "v$version" --message "Roadtrain $version"
    echo "release: prepared $version of $date: build it with scripts/release.sh build $version"
}

debian_changelog() {
    local file=packaging/deb/changelog maintainer day
    maintainer=$(dpkg-parsechangelog -l $file -S Maintainer)
    day=$(LC_ALL=C date -u -d "$date" '+%a, %d %b %Y 12:00:00 +0000')
    if [ "$(dpkg-parsechangelog -l $file -S Version)" = "$version-1" ]; then
        sed -i -E "1,/^ -- /s/^ -- .*/ -- $maintainer  $day/" $file
        return
    fi
    {
        printf 'roadtrain (%s-1) unstable; urgency=medium\n\n' "$version"
        printf '  * New version: see changelog.gz.\n\n -- %s  %s\n\n' "$maintainer" "$day"
        cat $file
    } >$file.new
    mv $file.new $file
}

build() {
    git rev-parse -q --verify "refs/tags/v$version" >/dev/null || die "there is no tag v$version: prepare it first"
    local out=$PWD/target/release-$version place
    place=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$place'" EXIT
    local folder
    for folder in "$place/one" "$place/another/place"; do
        git clone --quiet --no-hardlinks --branch "v$version" . "$folder" 2>/dev/null
        (cd "$folder" && make --no-print-directory deb)
    done
    rm -rf "$out"
    mkdir -p "$out"
    local package
    for package in "$place"/one/target/debian/*.deb; do
        cmp "$package" "$place/another/place/target/debian/${package##*/}" || die "${package##*/} is not reproducible"
        cp "$package" "$out"
    done
    cp "$place/one/target/sbom/roadtrain.cdx.json" "$out"
    (cd "$out" && sha256sum -- * >SHA256SUMS)
    echo "release: $version is in target/release-$version:"
    cat "$out/SHA256SUMS"
}

case $step in
    prepare) prepare ;;
    build) build ;;
    *) die "usage: release.sh prepare|build VERSION" ;;
esac
