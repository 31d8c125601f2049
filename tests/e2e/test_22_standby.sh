# shellcheck shell=bash
# Two target processes and one disk: one has it, the other stands by and takes over when the first has ended.

# shellcheck source=tests/lib/gateways.sh
. "$top/tests/lib/gateways.sh"

# stand_at NAME PORT CNTLIDS [OPTIONS]: a target of its own with the disk; leaves its process in $target
stand_at() {
    nqn=nqn.2026-11.test:standby
    background "$1.log" env ROADTRAIN_RUNTIME_DIR="$work/$1" "$ROADTRAIN" serve -a 127.0.0.1 -s "$2" -n "$nqn" \
        --cntlid-range "$3" --namespace "file:$work/disk.img,standby" "${@:4}"
    target=$pid
    until_line "$1.log" '^ready' "$target"
}

# serves NAME: it has the disk, soon
serves() {
    local n
    for ((n = 0; n < 100; n++)); do
        [ "$(ana_of "$1")" != optimized ] || return 0
        sleep 0.05
    done
    cat ./*.log
    fail "$1 does not serve: $(ana_of "$1")"
}

# carried_by INDEX: requests go over that path of the attachment, soon
carried_by() {
    local n before
    # Its status says that a path is connecting.
    "$ROADTRAIN" status --json >status.json || true
    before=$(jq ".[0].paths[$1].requests" status.json)
    for ((n = 0; n < 100; n++)); do
        "$ROADTRAIN" status --json >status.json || true
        ! jq -e ".[0].paths[$1].requests > $before" status.json >/dev/null || return 0
        sleep 0.1
    done
    cat status.json
    fail "nothing goes over path $1"
}

# size_at NAME BYTES: its namespace has that size, soon
size_at() {
    local n size
    for ((n = 0; n < 100; n++)); do
        size=$(env ROADTRAIN_RUNTIME_DIR="$work/$1" "$ROADTRAIN" status --json |
            jq '.[0].subsystems[0].namespaces[0].capacity_bytes')
        [ "$size" != "$2" ] || return 0
        sleep 0.05
    done
    fail "$1 shows $size bytes"
}

# Each process is killed in turn, under load that is checked byte for byte, and comes back as standby.
test_standby_takes_over_from_killed_processes() {
    local ports n owner other killed load
    ports=("$(free_port)" "$(free_port)")
    truncate -s 64M disk.img
    stand_at one "${ports[0]}" 1-1000
    local processes=("$target")
    stand_at two "${ports[1]}" 1001-2000
    processes+=("$target")
    [ "$(ana_of one) $(ana_of two)" = 'optimized inaccessible' ] || fail "$(ana_of one) $(ana_of two)"
    grep -q 'stands by: .*already in use' two.log
    # By the one that stands by alone there is no disk.
    ! timeout -s KILL 1 "$ROADTRAIN" bench -t tcp -a 127.0.0.1 -s "${ports[1]}" -n "$nqn" --seconds 1 \
        >alone.log 2>&1 || fail "it serves what it does not have: $(cat alone.log)"
    socket=$work/nbd.sock uri="nbd+unix:///?socket=$work/nbd.sock"
    background attach.log "$ROADTRAIN" attach -t tcp -a "127.0.0.1:${ports[0]}" -a "127.0.0.1:${ports[1]}" -n "$nqn" \
        --as "nbd:unix:$socket" --keep-alive-tmo 1 --reconnect-delay 1
    until_line attach.log '^ready' "$pid"
    background fio.log fio --name=verify --ioengine=nbd --uri="$uri" --rw=randwrite --bs=4k --size=16M \
        --io_size=4G --time_based --runtime=600 --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_backlog=64 \
        --eta=never --output=fio.txt
    load=$pid
    local names=(one two) ranges=(1-1000 1001-2000)
    for n in 0 1; do
        owner=${names[n]} other=${names[1 - n]}
        carried_by "$n"
        killed=$(date +%s%3N)
        kill -9 "${processes[n]}"
        serves "$other"
        echo "measured: $other had the disk $(($(date +%s%3N) - killed)) ms after the death of $owner"
        carried_by $((1 - n))
        mv "$owner.log" "$owner.$n.$killed.log"
        stand_at "$owner" "${ports[n]}" "${ranges[n]}"
        processes[n]=$target
        [ "$(ana_of "$owner")" = inaccessible ] || fail "$owner has taken it"
    done
    alive "$load" || { cat fio.log fio.txt attach.log; fail 'fio has ended'; }
    kill -INT "$load"
    ended "$load" 60
    wait "$load" || [ $? = 128 ] || { cat fio.log fio.txt attach.log; fail 'fio failed'; }
    grep -q 'err= 0' fio.txt || { cat fio.txt; fail 'fio saw errors'; }
    "$ROADTRAIN" detach --all >>detach.log
}

# A process that is stopped releases the disk to the other at once; its reservations are known there.
test_standby_takes_over_from_a_process_that_ends() {
    local ports
    ports=("$(free_port)" "$(free_port)")
    truncate -s 64M disk.img
    stand_at one "${ports[0]}" 1-1000
    local one=$target
    "$ROADTRAIN" resv register -a 127.0.0.1 -s "${ports[0]}" -n "$nqn" --nrkey 7 --nsid 1 --cptpl set >resv.log
    stand_at two "${ports[1]}" 1001-2000
    ! timeout -s KILL 1 "$ROADTRAIN" resv report -a 127.0.0.1 -s "${ports[1]}" -n "$nqn" --nsid 1 >not.log 2>&1 ||
        fail "it answers for what it does not have: $(cat not.log)"
    # The size that the other one gives it is seen.
    truncate -s 128M disk.img
    size_at two 134217728
    kill "$one"
    ended "$one" 60
    serves two
    "$ROADTRAIN" resv report -a 127.0.0.1 -s "${ports[1]}" -n "$nqn" --nsid 1 --json >report.json
    holds report.json '[.. | .rkey? // empty] == [7]'
}
