# shellcheck shell=bash
# What the scripts share that make the guide's pictures: a program, a folder that is gone afterwards, hosts with a load.
# ROADTRAIN=path of the program (built if not given).
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ROADTRAIN=${ROADTRAIN:-$here/target/release/roadtrain}
[ -x "$ROADTRAIN" ] || cargo build --quiet --release --package roadtrain --manifest-path "$here/Cargo.toml"
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
nqn=nqn.2025-01.io.example:disk
export ROADTRAIN_RUNTIME_DIR=$work/run

# background NAME COMMAND...: of the program; it says in $work/NAME.log that it is ready
background() {
    local n log=$work/$1.log
    "$ROADTRAIN" "${@:2}" >"$log" 2>&1 &
    pids+=($!)
    for ((n = 0; n < 400; n++)); do
        ! grep -q '^ready' "$log" || return 0
        sleep 0.05
    done
    cat "$log" >&2
    return 1
}

# metrics_of NAME: the address of its metrics
metrics_of() { sed -n 's/.*metrics at http:..\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$work/$1.log" | head -n 1; }

# load HOST OPTIONS...: a host at $port of the target
load() {
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --hostnqn "nqn.2025-01.io.example:$1" --seconds 200 \
        "${@:2}" >/dev/null 2>&1 &
    pids+=($!)
}

# publish FILE COLOURS: the picture of that name in $work becomes docs/guide/FILE
publish() {
    local made=$work/${1##*/}
    if command -v pngquant >/dev/null; then
        pngquant --force --speed 1 --output "$made" "$2" "$made"
    fi
    install -m 644 "$made" "$here/docs/guide/$1"
    ls -l "$here/docs/guide/$1"
}
