# shellcheck shell=bash
# Faults of two paths, one after the other, while programs on NBD and FUSE check what they read: all that they see is a
# pause. FAULTS says how many; with FAULTS=200 it takes a quarter of an hour. The kinds are drawn with SEED.

FAULTS=${FAULTS:-8}

# paths_lab: two links of a lab of its own; $host and $away run a program at one end, and see our mounts
paths_lab() {
    local why
    why=$(links_possible) || skip "$why"
    lab="p$BASHPID"
    host=(nsenter "--net=/run/netns/rt-$lab-h") away=(nsenter "--net=/run/netns/rt-$lab-t")
    trap 'links_remove "$lab"' EXIT
    links_make "$lab" 2 1500 10gbit
    nqn=nqn.2026-11.test:faults
}

# serve_paths [OPTIONS]: a target with a listener at each link; leaves its process in $target
serve_paths() {
    background "$work/target.log" env ROADTRAIN_RUNTIME_DIR="$work/served" "${away[@]}" "$ROADTRAIN" serve \
        -a 10.77.0.2 -a 10.77.1.2 -s 4420 -n "$nqn" "$@"
    target=$pid
    until_line "$work/target.log" '^ready' "$target"
}

both_paths=(-t tcp -a 10.77.0.2:4420 -a 10.77.1.2:4420)

# attach_both NAME FRONT: by both paths; the log is NAME.log
attach_both() {
    background "$1.log" "${host[@]}" "$ROADTRAIN" attach "${both_paths[@]}" -n "$nqn" --as "$2" --id "$1" \
        --keep-alive-tmo 2 --reconnect-delay 1
    until_line "$1.log" '^ready' "$pid"
}

# checked_load NAME OPTIONS of fio: until ./NAME.enough is there; leaves its process in $pid. NAME_lat.1.log has the time of
# day (ms) and the longest latency (ns) of each 100 ms.
checked_load() {
    background "$1.fio" fio --name="$1" --rw=randwrite --bs=4k --size=4M --verify=crc32c --verify_fatal=1 \
        --loops=1000000 --trigger-file="$1.enough" --eta=never --write_lat_log="$1" --log_avg_msec=100 \
        --log_max_value=1 --log_unix_epoch=1 "${@:2}"
}

# paths_are STATE STATE: of all attachments, within 40 s
paths_are() {
    local n
    for ((n = 0; n < 200; n++)); do
        "$ROADTRAIN" status --json >status.json || true
        ! jq -e "all(.[]; [.paths[].state] == [\"$1\", \"$2\"])" status.json >/dev/null || return 0
        sleep 0.2
    done
    cat status.json ./*.log
    fail "paths are not $*"
}

# fault KIND LINK TENTHS: makes it, and mends it so much later
fault() {
    local seconds=$(($3 / 10)).$(($3 % 10))
    case $1 in
    reset) in_target "$lab" ss --kill --tcp state established src "10.77.$2.2" >/dev/null ;;
    dark)
        ip -n "rt-$lab-m" link set "h$2" down
        sleep "$seconds"
        ip -n "rt-$lab-m" link set "h$2" up
        ;;
    stop)
        stopped "$target"
        sleep "$seconds"
        kill -CONT "$target"
        ;;
    kill)
        kill -KILL "$target"
        ended "$target" 60
        serve_paths --namespace "file:$work/disk.img,size=64MiB"
        ;;
    esac
}

# pauses NAME: for each kind in ./faults how many there were, and the longest latency that came with one
pauses() {
    awk -v name="$1" '
        NR == FNR { at[++n] = $1; kind[n] = $2; next }
        # A request that took long began before the fault that it is due to by little, and ended after others, perhaps.
        {
            began = $1 - $2 / 1e6
            for (k = n; k > 1 && at[k] > began + 300; k--);
            if (k && $2 + 0 > longest[k]) longest[k] = $2 + 0
        }
        END {
            for (k = 1; k <= n; k++) { count[kind[k]]++; if (longest[k] > most[kind[k]]) most[kind[k]] = longest[k] }
            for (what in count)
                printf "measured: %s: %s %d times, longest pause %d ms\n", name, what, count[what], most[what] / 1e6
        }' faults "$1"_lat.*.log
}

thorough+=(faults_of_paths_are_pauses)
test_faults_of_paths_are_pauses() {
    [ -c /dev/fuse ] || skip 'no /dev/fuse'
    paths_lab
    serve_paths --namespace "file:$work/disk.img,size=64MiB"
    attach_both nbd "nbd:unix:$work/nbd.sock"
    mnt=$PWD/mnt
    trap 'umount -l "$mnt" || true; links_remove "$lab"' EXIT
    attach_both fuse "fuse:$mnt"
    paths_are live live
    checked_load nbd --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd.sock" --iodepth=8
    local loads=("$pid") n kind
    checked_load fuse --ioengine=libaio --direct=1 --filename="$mnt/nvme0n1" --offset=32M --iodepth=8
    loads+=("$pid")
    sleep 1
    local kinds=(reset reset dark stop kill) link tenths calm=1 before
    for ((n = 0; n < FAULTS; n++)); do
        # Each kind once, and then what comes.
        kind=${kinds[n < 5 ? n : RANDOM % 5]} link=$((RANDOM % 2)) tenths=$((2 + RANDOM % 40))
        # Now and then the next fault follows at once; the pause then belongs to neither of them.
        before=$calm calm=$((RANDOM % 4 > 0))
        [ $before$calm = 11 ] && echo "$(date +%s%3N) $kind" >>faults || echo "$(date +%s%3N) overlapping" >>faults
        fault "$kind" $link $tenths
        [ $calm = 0 ] || paths_are live live
        alive "${loads[0]}" && alive "${loads[1]}" || { cat ./*.fio; tail -n 3 faults; fail 'a load has ended'; }
    done
    paths_are live live
    sleep 1
    : >nbd.enough
    : >fuse.enough # each load removes its own
    local load
    for load in "${loads[@]}"; do
        (ended "$load" 60) || { "$ROADTRAIN" status --json; tail nbd.log; fail 'requests have no answer'; }
        wait "$load" || { cat ./*.fio; fail 'a load saw errors'; }
    done
    ! grep -E 'err= *[1-9]|verify:' ./*.fio || fail 'a load saw errors'
    pauses nbd
    pauses fuse
    "$ROADTRAIN" status --json >status.json
    holds status.json 'all(.[]; .errors == 0)'
    "$ROADTRAIN" detach --all
}
