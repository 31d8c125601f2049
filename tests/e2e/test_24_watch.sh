# shellcheck shell=bash
# Watching what runs: slow requests, traces of them, and top.

# serve_here NAMESPACE...: a target in the folder where attachments are, too; leaves its process in $target
serve_here() {
    port=${port:-$(free_port)} nqn=${nqn:-nqn.2026-11.test:watch}
    background "$work/target.log" "$ROADTRAIN" serve -a 127.0.0.1 -s "$port" -n "$nqn" "$@"
    target=$pid
    until_line "$work/target.log" '^ready' "$target"
}

# on_terminal COLUMNS COMMAND...: its standard output is a terminal of that width; prints what it gets
on_terminal() {
    python3 - "$@" <<'END'
import fcntl, os, pty, struct, subprocess, sys, termios
leader, follower = pty.openpty()
fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
process = subprocess.Popen(sys.argv[2:], stdout=follower)
os.close(follower)
try:
    while data := os.read(leader, 65536):
        sys.stdout.buffer.write(data)
except OSError:
    pass  # the terminal ends with the process
sys.exit(process.wait())
END
}

alone+=(watch_slow_requests)  # others make requests slow
thorough+=(watch_slow_requests)

# Reads of a slow store, whose time is in the stage `store` at the target, and in `target` at the host.
test_watch_slow_requests() {
    serve_here --namespace ssd:64MiB,service-us=3000,parallel=64 --slow-over 1ms
    attach --slow-over 1ms
    # Few at once: both ends record the same ones before they raise what they call slow.
    nbdcopy --connections=1 --requests=2 "$uri" null:
    "$ROADTRAIN" slow --json --count 1000 >slow.json
    holds slow.json '.recorders | map(.reactors[0].slow_over_us) | length == 2 and all(. >= 1000)'
    holds slow.json '[.recorded_requests[] | select(.end == "host" and .longest == "target" and .op == "read")] | length > 10'
    holds slow.json '[.recorded_requests[] | select(.end == "host")] | all(.total_us >= 2900 and .bytes > 0 and .nsid == 1)'
    # One that was slow for the target alone has a sample of the host as its other end.
    holds slow.json '[.recorded_requests[] | select(.end == "host").other_end // empty] | length > 10 and all(.end == "target") and (map(select(.longest == "store")) | length > 10)'
    holds slow.json '[.recorded_requests[] | select(.end == "host" and .other_end)] | all(.total_us >= .other_end.total_us - 100)'
    holds slow.json '[.recorded_requests[] | select(.end == "host").other_end // empty] | all(.line.nqn == $nqn and .stages[2].us >= 2900)' --arg nqn "$nqn"
    "$ROADTRAIN" slow --count 1000 >slow.log
    grep -q 'slow is over [0-9.]* [um]s now' slow.log
    grep -q '\*store' slow.log
    on_terminal 80 "$ROADTRAIN" slow >narrow.log
    grep -q '\*store' narrow.log || fail "$(cat narrow.log)"
    python3 -c 'import sys; sys.exit(any(len(line.rstrip("\r\n")) > 80 for line in open(sys.argv[1])))' narrow.log ||
        fail "$(cat narrow.log)"
    "$ROADTRAIN" slow -a "127.0.0.1:$port" target0 --json >one.json
    holds one.json '.recorders | map(.id) == ["target0"]'
    local rc=0
    "$ROADTRAIN" slow nothing 2>error.log || rc=$?
    [ "$rc" = 1 ]
}

test_watch_trace() {
    serve_here --namespace ssd:64MiB,service-us=2000,parallel=64 --slow-over 1ms
    attach --slow-over 1ms
    nbdcopy "$uri" null:
    "$ROADTRAIN" ctl trace -o trace.json
    holds trace.json '[.traceEvents[] | select(.ph == "X" and .cat == "slow")] | length > 20'
    holds trace.json '[.traceEvents[] | select(.ph == "X" and .name == "store")] | length > 10 and all(.dur > 1900)'
    holds trace.json '[.traceEvents[] | select(.name == "process_name").args.name] | contains(["target0"])'
    # Each stage lies inside of a request of its track.
    holds trace.json '.traceEvents | map(select(.ph == "X")) | group_by([.pid, .tid]) | all(
        (map(select(.cat != "stage"))) as $requests | map(select(.cat == "stage")) | all(. as $s |
            any($requests[]; .ts <= $s.ts + 0.002 and $s.ts + $s.dur <= .ts + .dur + 0.002)))'
    "$ROADTRAIN" ctl trace --id target0 >one.json
    holds one.json '[.traceEvents[] | select(.ph == "M" and .name == "process_name")] | length == 1'
}

# A recorder that is off records nothing, and a query is still allowed.
test_watch_recorder_off() {
    serve_here --namespace ssd:16MiB,service-us=2000,parallel=64 --slow-over off
    "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw randread --bs 4k --depth 8 --ios 1000 --json >bench.json
    "$ROADTRAIN" slow --sampled --json >slow.json
    holds slow.json '.recorded_requests == [] and .recorders[0].reactors[0].slow_over_us == null'
}

# A load of a known rate: top says the same.
test_watch_top_once() {
    local metrics
    metrics=$(free_port)
    serve_here --namespace mem:64MiB --metrics "127.0.0.1:$metrics"
    thrice top_says_the_rate
    holds top.json '.silent == []'
    grep -q '^1\.1 ' top.log
    local rc=0
    # Of another machine, by the address of its metrics.
    ROADTRAIN_RUNTIME_DIR="$work/empty" "$ROADTRAIN" top --once --json --interval 0.5 --metrics "127.0.0.1:$metrics" >far.json
    holds far.json '.silent == [] and (.processes | length) == 1 and .processes[0].kind == "target"'
    ROADTRAIN_RUNTIME_DIR="$work/empty" "$ROADTRAIN" top --once 2>error.log || rc=$?
    [ "$rc" = 1 ] && grep -q 'nothing is attached or served here' error.log
    rc=0
    "$ROADTRAIN" top --once -a "127.0.0.1:$(free_port)" 2>error.log || rc=$?
    [ "$rc" = 3 ]
}

top_says_the_rate() {
    background bench.json "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --rw randread --bs 4k \
        --depth 16 --rate 2000 --lanes 1 --seconds 600 --json
    local bench=$pid
    moves_data
    "$ROADTRAIN" top --once --json --interval 1 >top.json
    "$ROADTRAIN" top --once --interval 0.5 >top.log
    kill -INT "$bench"
    ended "$bench" 20
    holds bench.json '.iops > 1000'
    local iops
    iops=$(jq .iops bench.json)
    holds top.json '.processes | length == 1 and .[0].kind == "target" and .[0].state == "serving"'
    holds top.json '.processes[0] | [.total, .namespaces[0], .hosts[0], .lanes[0]] | all(.iops > $iops * 0.7 and .iops < $iops * 1.4)' \
        --argjson iops "$iops"
    holds top.json '.processes[0].total | .bytes_per_second > .iops * 4000 and .p50_us > 0 and .p999_us >= .p99_us'
    holds top.json '.processes[0].lanes[0] | .requests_per_caravan >= 1 and .sends_per_second > 0'
}

# screen_has TEXT: the terminal shows that soon
screen_has() {
    local n
    for ((n = 0; n < 100; n++)); do
        tmux -L watch-$$ capture-pane -p -t top >screen
        ! grep -qF -- "$1" screen || return 0
        sleep 0.1
    done
    cat screen
    fail "the screen does not show: $1"
}

# A terminal of 80 x 24, and one that changes its size: keys, and what is left at the end.
test_watch_top_terminal() {
    command -v tmux >/dev/null || skip "no tmux"
    serve_here --namespace mem:64MiB
    local tmux=(tmux -L watch-$$ -f /dev/null)

    "${tmux[@]}" new-session -d -s top -x 80 -y 24 "'$ROADTRAIN' top --interval 0.2; echo ended \$?; stty -a | tr ';\n' '  '; sleep 60"
    screen_has '[1 Processes 1]'
    screen_has 'q quit'
    "${tmux[@]}" send-keys -t top 2
    screen_has '> ns 1'
    "${tmux[@]}" send-keys -t top Enter
    screen_has 'namespace  1 of 64 MiB'
    "${tmux[@]}" send-keys -t top Escape
    screen_has '[2 Namespaces 1]'
    "${tmux[@]}" send-keys -t top s r
    screen_has 'bytes/s▲'
    "${tmux[@]}" send-keys -t top p
    screen_has 'PAUSED'
    "${tmux[@]}" resize-window -t top -x 120 -y 30
    screen_has 'recent IOPS'
    "${tmux[@]}" resize-window -t top -x 30 -y 6
    screen_has 'roadtrain top'
    "${tmux[@]}" resize-window -t top -x 80 -y 24
    "${tmux[@]}" send-keys -t top q
    screen_has 'ended 0'
    screen_has ' icanon' # and the terminal is as it was
    screen_has ' echo '
    ! grep -qF 'roadtrain top' screen || fail "its screen was left"
    "${tmux[@]}" respawn-window -k -t top "'$ROADTRAIN' top --interval 0.2; echo ended \$?; stty -a | tr ';\n' '  '; sleep 60"
    screen_has '[1 Processes 1]'
    "${tmux[@]}" send-keys -t top C-c
    screen_has 'ended 0'
    screen_has ' icanon'
    "${tmux[@]}" kill-server
}
