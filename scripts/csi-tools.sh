#!/bin/bash
# Builds what checks the CSI driver, as far as it is missing: csi-tools.sh [csi-sanity|helm].... Each is a Go module, and
# comes into target/csi-tools. Exit status 77: it cannot be had here; the last line says why.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$PWD/target/csi-tools
declare -A modules=(
    [csi-sanity]=github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.6.0
    [helm]=helm.sh/helm/v3/cmd/helm@v3.22.0
)

go=$(command -v go || true)
[ -n "$go" ] || [ ! -x /usr/local/go/bin/go ] || go=/usr/local/go/bin/go

for tool in "${@:-csi-sanity}"; do
    module=${modules[$tool]}
    place=$tools/${module##*@}-$tool
    if [ ! -x "$place" ]; then
        [ -n "$go" ] || { echo "csi-tools: $tool needs Go 1.25 or later: install it"; exit 77; }
        mkdir -p "$tools"
        (
            flock 9
            [ -x "$place" ] || {
                GOBIN=$tools/bin timeout 1500 "$go" install "$module" >"$tools/$tool.log" 2>&1 &&
                    mv "$tools/bin/$tool" "$place"
            }
        ) 9>"$tools/$tool.lock" || { echo "csi-tools: no $tool: $(tail -n 1 "$tools/$tool.log")"; exit 77; }
    fi
    ln -sfn "${place##*/}" "$tools/$tool"
done
