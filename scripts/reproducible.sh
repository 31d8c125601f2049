#!/bin/bash
# Builds the last commit twice, in two folders, and compares the bytes: reproducible.sh [PACKAGE...]
set -euo pipefail
cd "$(dirname "$0")/.."

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for folder in "$place/one" "$place/another/place"; do
    git clone --quiet --no-hardlinks . "$folder"
    "$folder/scripts/release-build.sh" "$@"
done
count=0
while IFS= read -r file; do
    cmp "$place/one/target/package/dist/$file" "$place/another/place/target/package/dist/$file"
    count=$((count + 1))
done < <(cd "$place/one/target/package/dist" && find . -maxdepth 1 -type f -perm -u+x -printf '%P\n')
[ "$count" -gt 0 ] || { echo 'reproducible: nothing was built' >&2; exit 1; }
echo "reproducible: $count files are the same"
