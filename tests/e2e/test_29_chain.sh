# shellcheck shell=bash
# Chains: a namespace of another target as a store. Each target of a chain dies and comes back, and nothing is lost.

chain_nqn=nqn.2026-11.test:chain

# link NAME PORT [OPTIONS]: a target at that port, whose subsystem is $chain_nqn-NAME; leaves its process in $pid
link() {
    background "$work/$1.log" env ROADTRAIN_RUNTIME_DIR="$work/$1.run" "$ROADTRAIN" serve -a 127.0.0.1 -s "$2" \
        -n "$chain_nqn-$1" "${@:3}"
    until_line "$work/$1.log" '^ready' "$pid" 60
}

# to NAME PORT [,OPTIONS]: the namespace of that target, as a store
to() { echo "nvme:127.0.0.1:$2/$chain_nqn-$1/1,reconnect-delay=0.1${3-}"; }

# refused_here TEXT COMMAND...: fails, and says so
refused_here() {
    ! "${@:2}" >refused.out 2>refused.log || fail "${*:2}: it does not fail"
    grep -qE "$1" refused.log refused.out || fail "${*:2}: $(cat refused.log)"
}

# kill_and_restart PROCESS NAME PORT [OPTIONS]: with SIGKILL; leaves the new process in $pid
kill_and_restart() {
    kill -KILL "$1"
    ended "$1" 60
    link "${@:2}"
}

# fio checks each block that it has written; bench checks every block that it reads while the load runs.
test_chain_of_three_dies_and_comes_back() {
    local back middle front a b c n load
    a=$(free_port) b=$(free_port) c=$(free_port)
    link back "$a" --namespace "file:$work/disk.img,size=64MiB"
    back=$pid
    link middle "$b" --namespace "$(to back "$a")"
    middle=$pid
    link front "$c" --namespace "$(to middle "$b")"
    front=$pid
    "$ROADTRAIN" bench -a 127.0.0.1 -s "$c" -n "$chain_nqn-front" --reconnect-delay 0.1 --rw randrw --bs 4k --depth 8 \
        --size 8MiB --seconds 600 --verify --json >bench.json 2>bench.log &
    load=$!
    echo "$load" >>.pids
    for n in 1 2; do
        sleep 1
        kill_and_restart "$back" back "$a" --namespace "file:$work/disk.img,size=64MiB"
        back=$pid
        sleep 1
        kill_and_restart "$middle" middle "$b" --namespace "$(to back "$a")"
        middle=$pid
        sleep 1
        kill_and_restart "$front" front "$c" --namespace "$(to middle "$b")"
        front=$pid
        alive "$load" || fail "round $n: $(cat bench.log)"
    done
    kill -INT "$load"
    wait "$load" || fail "$(cat bench.log)"
    holds bench.json '.errors == 0 and .blocks_checked > 0'
    kill "$front" "$middle" "$back"
    ended "$front" 60
    ended "$middle" 60
    ended "$back" 60
}

test_chain_with_fio() {
    local back
    port=$(free_port) nqn=$chain_nqn-front
    local a
    a=$(free_port)
    link back "$a" --namespace "file:$work/disk.img,size=64MiB"
    back=$pid
    serve --namespace "$(to back "$a")"
    attach --reconnect-delay 0.2
    background fio.log fio --name=chain --ioengine=nbd --bs=4k --size=16M --iodepth=32 --verify=crc32c --verify_fatal=1 \
        --fsync=32 --eta=never --uri="$uri" --rw=randwrite --rate=8m --output=fio-result.log
    local load=$pid n
    for n in 1 2 3; do
        moves_data
        alive "$load" || { cat fio.log; fail "fio ended before crash $n"; }
        kill_and_restart "$back" back "$a" --namespace "file:$work/disk.img,size=64MiB"
        back=$pid
    done
    wait "$load" || fail "$(cat fio.log)"
    kill "$attached" "$target" "$back"
}

# TLS and authentication in both directions to the back; plain to the host. No key is printed or kept.
test_chain_secured() {
    local a keys host=nqn.2026-11.test:gate
    a=$(free_port)
    (umask 077 && "$ROADTRAIN" keys tls >gate.tls && "$ROADTRAIN" keys dhchap >gate.key && "$ROADTRAIN" keys dhchap >back.key)
    link back "$a" --namespace mem:16MiB --tls required --tls-key "$host=gate.tls" --require-auth \
        --dhchap-key "$host=gate.key" --dhchap-ctrl-key "$host=back.key"
    keys="hostnqn=$host,tls-key=$work/gate.tls,dhchap-secret=$work/gate.key,dhchap-ctrl-secret=$work/back.key"
    serve --namespace "$(to back "$a" ",$keys")"
    "$ROADTRAIN" bench -a 127.0.0.1 -s "$port" -n "$nqn" --rw randrw --bs 4k --depth 8 --size 8MiB --ios 4000 --verify \
        --json >bench.json
    holds bench.json '.errors == 0 and .blocks_checked > 0'
    prints '[.[].subsystems[].controllers[] | .transport, .auth.hash] == ["tls", "sha256"]' \
        env ROADTRAIN_RUNTIME_DIR="$work/back.run" "$ROADTRAIN" status --json || fail "$(cat printed.json)"
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl config save -o saved.toml
    grep -q 'kind = "nvme"' saved.toml || fail "$(cat saved.toml)"
    ! grep -q 'DHHC\|NVMeTLSkey' target.log back.log saved.toml || fail 'a key is shown'
    refused_here 'require TLS' "$ROADTRAIN" serve -a 127.0.0.1 -s "$(free_port)" -n nqn.x:y --namespace "$(to back "$a")"
    refused_here 'name a file' "$ROADTRAIN" serve -a 127.0.0.1 -s "$(free_port)" -n nqn.x:y \
        --namespace "$(to back "$a" ",dhchap-secret=$(cat gate.key)")"
}

# kill_connections PORT: resets the connections to that port, where the kernel can
kill_connections() { ss -K "dport = $1" >/dev/null 2>&1 || true; }

# One of two paths is cut: requests go on over the other one.
test_chain_over_two_paths() {
    local a b front
    a=$(free_port) b=$(free_port)
    link back "$a" --namespace mem:16MiB
    local its=(env ROADTRAIN_RUNTIME_DIR="$work/back.run" "$ROADTRAIN" ctl)
    "${its[@]}" listener add -a 127.0.0.1 -s "$b" >listener.txt
    serve --namespace "nvme:127.0.0.1:$b/$chain_nqn-back/1,path=127.0.0.1:$a,keep-alive-tmo=1,reconnect-delay=0.1"
    "$ROADTRAIN" bench -a 127.0.0.1 -s "$port" -n "$nqn" --rw randrw --bs 4k --depth 8 --size 8MiB --seconds 6 --verify \
        --json >bench.json 2>bench.log &
    front=$!
    echo "$front" >>.pids
    sleep 2
    "${its[@]}" listener remove -a 127.0.0.1 -s "$b" >>listener.txt
    kill_connections "$b"
    wait "$front" || fail "$(cat bench.log)"
    holds bench.json '.errors == 0 and .blocks_checked > 0'
}

# While the target runs: added, saved, kept over a restart, removed; resize and errors.
test_chain_of_a_running_target() {
    local a
    a=$(free_port)
    link back "$a" --namespace "file:$work/disk.img,size=16MiB"
    local back=$pid ctl=(env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl)
    serve --namespace mem:1MiB --state state.toml --file-root "$work"
    "${ctl[@]}" subsystem add -n "$chain_nqn-front"
    "${ctl[@]}" namespace add -n "$chain_nqn-front" "$(to back "$a")" >added.txt
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status >status.txt
    "$ROADTRAIN" bench -a 127.0.0.1 -s "$port" -n "$chain_nqn-front" --rw randrw --bs 4k --depth 8 --size 8MiB --ios 2000 \
        --verify --json >bench.json
    holds bench.json '.errors == 0 and .blocks_checked > 0'
    kill -KILL "$target"
    ended "$target" 30
    serve --namespace mem:1MiB --state state.toml --file-root "$work"
    "$ROADTRAIN" bench -a 127.0.0.1 -s "$port" -n "$chain_nqn-front" --rw randread --bs 4k --ios 100 --json >bench.json
    holds bench.json '.errors == 0'
    eventually 20 prints '[.[].subsystems[].controllers[]] | length == 1' \
        env ROADTRAIN_RUNTIME_DIR="$work/back.run" "$ROADTRAIN" status --json
    "${ctl[@]}" namespace remove -n "$chain_nqn-front" --nsid 1
    eventually 20 prints '[.[].subsystems[].controllers[]] | length == 0' \
        env ROADTRAIN_RUNTIME_DIR="$work/back.run" "$ROADTRAIN" status --json
    refused_here 'no namespace 7: it has 1' "${ctl[@]}" namespace add -n "$chain_nqn-front" \
        "nvme:127.0.0.1:$a/$chain_nqn-back/7"
    refused_here 'of this target itself' "${ctl[@]}" namespace add -n "$chain_nqn-front" "nvme:127.0.0.1:$port/$nqn/1"
    kill "$back"
    ended "$back" 30
    refused_here 'cannot reach' "${ctl[@]}" namespace add -n "$chain_nqn-front" "$(to back "$a")"
}
