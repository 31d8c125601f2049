# shellcheck shell=bash
# A target that is managed by JSON-RPC, and the clients of SPDK in a virtual environment of Python.

# python_with NAME PACKAGE...: Python with these packages; leaves the folder of its programs in $python; skips the test when
# they cannot be had
python_with() {
    local venv=$top/target/venv/$1
    mkdir -p "${venv%/*}"
    # One makes it: tests that run at the same time want the same.
    (
        flock 9
        [ -e "$venv/ready" ] || {
            rm -rf "$venv" && python3 -m venv "$venv" &&
                "${outside[@]}" timeout 400 "$venv/bin/pip" install --quiet "${@:2}" && touch "$venv/ready"
        }
    ) 9>"$venv.lock" >venv.out 2>&1 || skip "no $1 from PyPI for $(python3 --version): $(tail -n 1 venv.out)"
    python=$venv/bin
}

# spdk_clients [VERSION]: leaves their folder in $spdk; skips the test when they cannot be had
spdk_clients() {
    local version=${1:-26.9}
    python_with "spdk-$version" "spdk[cli]==$version"
    spdk=$python
}

# s METHOD [ARGUMENTS]: one call by spdk-rpc; the result is in s.json
s() { "$spdk/spdk-rpc" -s "$rpc" "$@" >s.json 2>s.log || { cat s.log target.log; fail "spdk-rpc $*"; }; }

# managed [OPTIONS]: a target with RPC at $rpc, state in state.toml and files below $work/files; process in $target
managed() {
    rpc=$work/rpc.sock
    mkdir -p files
    background target.log env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" serve --rpc "$rpc" --state state.toml \
        --file-root "$work/files" "$@"
    target=$pid
    until_line target.log '^ready' "$target"
}

# r METHOD [JSON]: one call by our own client; the result is in r.json
r() { "$ROADTRAIN" ctl --rpc "$rpc" rpc "$@" >r.json; }

# is FILTER [OPTIONS of jq]: true of the last result
is() { holds r.json "$@"; }

# wrong CODE TEXT METHOD [JSON]: it is refused like that
wrong() {
    local rc=0
    "$ROADTRAIN" ctl --rpc "$rpc" rpc "${@:3}" >wrong.out 2>wrong.log || rc=$?
    [ "$rc" = 1 ] && grep -qF -- "$2" wrong.log && grep -qF -- "($1)" wrong.log || fail "${*:3}: status $rc: $(cat wrong.log wrong.out)"
}

# c WORD...: `roadtrain ctl`; what it says in JSON is in r.json
c() { "$ROADTRAIN" ctl --rpc "$rpc" "$@" --json >r.json 2>c.log || fail "ctl $*: $(cat c.log)"; }

# no STATUS TEXT WORD...: `roadtrain ctl` ends with that status and text
no() { refused_with "$1" "$2" "$ROADTRAIN" ctl --rpc "$rpc" "${@:3}"; }
