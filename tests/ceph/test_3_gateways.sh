# shellcheck shell=bash disable=SC1091
# Two gateways and one image: one serves it, the other one stands by.
. "$top/tests/lib/gateways.sh"

# An owner that this machine keeps from running for 4 to 5 s loses the image, as it should. Then these tests fail, so only
# one of them runs each time.
thorough+=(gateways_owner_frozen gateways_owner_cut_off gateways_taken_over_on_command gateways_standby_by_reload
    gateways_no_old_reads_of_frozen_owner gateways_no_old_reads_of_owner_cut_off gateways_know_an_outage_from_a_death
    gateways_share_reservations_there_and_back)

# with_load FAULT [ARGUMENTS]: verified writes go on while it happens, without an error; prints how long they paused
with_load() {
    host both 192.0.2.3 192.0.2.1
    background load.log fio --name=verify --ioengine=nbd --uri="$uri" --rw=randwrite --bs=4k --size=16M \
        --loops=100000 --trigger-file=enough --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_backlog=64 \
        --eta=never --output-format=json --output=fio.json
    local load=$pid
    data_moves "$work/both.run"
    "$@"
    data_moves "$work/both.run"
    : >enough
    ended "$load" 120
    wait "$load" || { cat load.log fio.json; tail -n 20 one.log two.log both.log; fail 'the load failed'; }
    holds fio.json '.jobs[0].error == 0'
    measured "$*"
}

# measured FAULT: the pause, and what it is made of
measured() {
    local log=two.log line
    line=$(grep -h 'takes it from its owner' $log | tail -n 1)
    [ -n "$line" ] || fail "two did not take it: $(cat two.log)"
    local took fenced had
    took=$(date -d "$(grep -oE '[0-9T:.-]+Z' <<<"$line" | head -n 1)" +%s%3N)
    fenced=$(grep -h 'its owner is fenced, after' $log | tail -n 1 | grep -oE '[0-9]+ ms')
    had=$(grep -h 'has it, after' $log | tail -n 1 | grep -oE '[0-9]+ ms')
    local pause
    pause=$(jq '[.jobs[0].write, .jobs[0].read] | map(.clat_ns.max) | max / 1e6 | floor' fio.json)
    echo "measured: $1: paused for $pause ms: seen after $((took - fault)) ms, fenced in $fenced, had in $had, the rest" \
        "is the host's"
    # 5 s of silence have to pass; the rest, less than 2 s, may take ten times as long on a slow machine.
    ((pause <= 25000)) || fail "paused for $pause ms"
}

killed() {
    fault=$(date +%s%3N)
    kill -KILL "$gateway_one"
    is_soon two optimized
    gateway one
    [ "$(ana_of one)" = inaccessible ] || fail 'one has it again'
}

frozen() {
    fault=$(date +%s%3N)
    stopped "$gateway_one"
    is_soon two optimized
    data_moves "$work/both.run"
    kill -CONT "$gateway_one"
    # It finds itself fenced, and stands by.
    until_line one.log 'stands by:' "$gateway_one" 60
    is_soon one inaccessible
}

cut_off() {
    fault=$(date +%s%3N)
    cut_storage
    is_soon one inaccessible
    is_soon two optimized
    data_moves "$work/both.run"
    mend_storage
    until_line one.log 'stands by:' "$gateway_one" 60
}

told() {
    fault=$(date +%s%3N)
    env ROADTRAIN_RUNTIME_DIR="$work/two" "$ROADTRAIN" ctl namespace claim --nsid 1 >claim.log
    grep -q 'namespace 1 of .* is served here' claim.log || fail "$(cat claim.log)"
    [ "$(ana_of two)" = optimized ]
    until_line one.log 'stands by:' "$gateway_one" 60
    is_soon one inaccessible
}

both_gateways() {
    gateways_lab
    gateway one
    gateway two
    is_soon one optimized
    is_soon two inaccessible
}

test_gateways_owner_killed() {
    both_gateways
    with_load killed
}

test_gateways_owner_frozen() {
    both_gateways
    with_load frozen
}

test_gateways_owner_cut_off() {
    both_gateways
    with_load cut_off
}

test_gateways_taken_over_on_command() {
    both_gateways
    with_load told
    # A claim by the owner changes nothing; a store in memory has no other owner.
    env ROADTRAIN_RUNTIME_DIR="$work/two" "$ROADTRAIN" ctl namespace claim --nsid 1 >claim.log
    grep -q 'nothing has changed' claim.log || fail "$(cat claim.log)"
}

# Two targets that have the image by `ctl`, not by an option: the state keeps that they stand by.
test_gateways_of_states() {
    local name
    ceph_lab
    rbd_tool create rbd/disk --size 64M
    nqn=nqn.2026-11.test:states
    for name in one two; do
        state_gateway $name
        env ROADTRAIN_RUNTIME_DIR="$work/$name" "$ROADTRAIN" ctl subsystem add -n $nqn --serial D1 \
            --namespace "rbd:rbd/disk,$image,standby" >ctl.log 2>&1 || fail "$(cat ctl.log $name.log)"
    done
    is_soon one optimized
    is_soon two inaccessible
    grep -q '^standby = true' one.toml || fail "$(cat one.toml)"
    kill -KILL "$gateway_one"
    is_soon two optimized
    state_gateway one
    is_soon one inaccessible
    env ROADTRAIN_RUNTIME_DIR="$work/one" "$ROADTRAIN" ctl namespace claim --nsid 1 >claim.log 2>&1 || fail "$(cat claim.log)"
    is_soon one optimized
    is_soon two inaccessible
}

# state_gateway one|two: a target with a state file; leaves its process in $gateway_one or $gateway_two
state_gateway() {
    local name=$1 range=1-1000
    [ "$name" = one ] || range=1001-2000
    [ ! -e "$name.log" ] || mv "$name.log" "$name.$RANDOM.log"
    background "$name.log" env ROADTRAIN_RUNTIME_DIR="$work/$name" "$ROADTRAIN" serve -a 127.0.0.1 -s 0 \
        --state "$name.toml" --cntlid-range $range
    until_line "$name.log" '^ready' "$pid" 60
    declare -g "gateway_$name=$pid"
}

# By a reload an image becomes one that others may take over: it is opened anew.
test_gateways_standby_by_reload() {
    gateways_lab
    local options=(-a 192.0.2.3 -s "$port" -n "$nqn" --serial D1 --cntlid-range 1-1000)
    "$ROADTRAIN" serve "${options[@]}" --namespace "rbd:rbd/disk,$image" --print-config >one.toml
    background one.log "${in_other[@]}" env ROADTRAIN_RUNTIME_DIR="$work/one" "$ROADTRAIN" serve --config one.toml
    gateway_one=$pid
    until_line one.log '^ready' "$pid" 60
    "$ROADTRAIN" serve "${options[@]}" --namespace "rbd:rbd/disk,$image,standby" --print-config >one.toml
    kill -HUP "$gateway_one"
    until_line one.log 'reloaded' "$gateway_one" 60
    is_soon one optimized
    gateway two
    [ "$(ana_of two)" = inaccessible ] || fail 'two has it'
    kill -KILL "$gateway_one"
    is_soon two optimized
}

# reads_of_old_owner: what comes by `one` alone, of blocks that were written by `two` and never before
reads_of_old_owner() {
    local at reader readers=()
    # It waits on its connection while the gateway stands still. So the reads lie there when the gateway goes on, and are
    # executed before it knows that it was fenced.
    patience=60 host old 192.0.2.3
    local old=$uri
    # Blocks that were never written, of which it might keep in mind that there is nothing.
    qemu-io -f raw -c 'read -P 0 32M 4M' -c 'write -P 1 0 64k' "$old" >io.log
    "$1" # the fault: two has it now
    host new 192.0.2.1
    qemu-io -f raw -c 'write -P 7 32M 4M' "$uri" >io.log
    for at in 32 33 34 35; do
        background "read$at.log" qemu-io -f raw -c "read -P 7 ${at}M 64k" "$old"
        readers+=("$pid")
    done
    eventually 60 prints '[.[0].lanes[].in_flight] | add >= 4' env ROADTRAIN_RUNTIME_DIR="$work/old.run" "$ROADTRAIN" status --json
    "$2" # it is there again
    until_line one.log 'stands by:' "$gateway_one" 60
    # By that way alone nothing can be had, until it has the image.
    kill -TERM "$gateway_two"
    is_soon one optimized
    for reader in "${readers[@]}"; do
        ended "$reader" 120
        wait "$reader" || { cat read*.log; fail 'a read failed'; }
    done
    [ "$(grep -l 'read 65536/65536' read3?.log | wc -l)" = 4 ] || { cat read*.log; fail 'no reads'; }
    ! grep -i 'verification failed' read*.log || fail 'old data'
}

# order WHO_EXECUTES WHO_NOTICES PRIORITY: how threads of `one` are scheduled, on one processor: those that execute
# commands, and those that notice that it was fenced
order() {
    local task cpu
    cpu=$(($(nproc --all) - 1))
    for task in /proc/"$gateway_one"/task/*; do
        # Threads of librbd come and go.
        taskset -cp "$cpu" "${task##*/}" >>order.log 2>&1 || continue
        case $(cat "$task/comm" 2>>order.log) in
            roadtrain-stand | roadtrain-rbd) chrt "$2" -p 0 "${task##*/}" ;;
            # It takes a permission that root may lack.
            *) chrt "$1" -p "$3" "${task##*/}" ;;
        esac >>order.log 2>&1 || true
    done
}

# When it goes on, who executes commands is first and who notices is last. Else it is by chance whether anything is
# executed that a fenced owner must not answer.
freeze_one() {
    order --fifo --idle 1
    stopped "$gateway_one"
    is_soon two optimized
}

thaw_one() {
    kill -CONT "$gateway_one"
    sleep 0.5
    order --other --other 0
}

cut_one() {
    cut_storage
    is_soon two optimized
}

test_gateways_no_old_reads_of_frozen_owner() {
    both_gateways
    reads_of_old_owner freeze_one thaw_one
}

test_gateways_no_old_reads_of_owner_cut_off() {
    both_gateways
    reads_of_old_owner cut_one mend_storage
}

# While no gateway reaches the cluster the image stays with its owner, also for longer than the silence that a takeover
# waits for.
test_gateways_know_an_outage_from_a_death() {
    both_gateways
    "$cluster" kill-osd "$ceph" 0 STOP
    is_soon one inaccessible
    sleep 5
    "$cluster" start-osd "$ceph" 0
    is_soon one optimized
    [ "$(ana_of two)" = inaccessible ] || fail 'two has taken it'
    ! grep 'takes it from its owner' two.log || fail 'two has taken it'
}

# claimed NAME OTHER: it takes the image away from the other one
claimed() {
    env ROADTRAIN_RUNTIME_DIR="$work/$1" "$ROADTRAIN" ctl namespace claim --nsid 1 >claim.log
    is_soon "$2" inaccessible
}

# resv_at ADDRESS HOST COMMAND...: roadtrain resv, on namespace 1
resv_at() {
    "$ROADTRAIN" resv "$3" -t tcp -a "$1" -s "$port" -n "$nqn" -q "nqn.2026-11.test:$2" \
        --nsid 1 "${@:4}"
}

# Both have the file of reservations. Who gets the image back goes by what has happened at the other one.
test_gateways_share_reservations_there_and_back() {
    gateways_lab
    gateway one "rbd:rbd/disk,$image,standby,reservations=$work/shared"
    gateway two "rbd:rbd/disk,$image,standby,reservations=$work/shared"
    resv_at 192.0.2.3 a register --nrkey 1 --cptpl set
    resv_at 192.0.2.3 a acquire --crkey 1 --rtype 1
    claimed two one
    resv_at 192.0.2.1 b register --nrkey 2
    resv_at 192.0.2.1 b acquire --crkey 2 --prkey 1 --racqa 1 --rtype 1
    claimed one two
    resv_at 192.0.2.3 b report --json >report.json
    holds report.json '.gen == 3 and .rtype == 1 and [.regctlext[] | [.rkey, .rcsts]] == [[2, 1]]'
}
