# shellcheck shell=bash
# Reservations by `roadtrain resv`, as two hosts, over the target's death.

# as HOST COMMAND...: roadtrain resv, on namespace 1
as() {
    "$ROADTRAIN" resv "$2" -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" -q "nqn.2025-01.io.example:$1" \
        --nsid 1 "${@:3}"
}

# conflict HOST COMMAND...: ends with status 1 and a sentence
conflict() {
    local rc=0
    as "$@" 2>said || rc=$?
    [ $rc = 1 ] || fail "$*: status $rc"
    grep -q 'Reservation Conflict' said || { cat said; fail "$*: says nothing of a conflict"; }
}

test_reservations_outlive_the_target() {
    serve --namespace "file:$work/disk.img,size=64MiB"
    conflict a acquire --crkey 1 --rtype 1
    as a register --nrkey 0x1 --cptpl 3
    as b register --nrkey 2
    as a acquire --crkey 1 --rtype write-exclusive
    conflict b acquire --crkey 2 --rtype 1
    kill -KILL "$target"
    ended "$target" 60
    serve --namespace "file:$work/disk.img,size=64MiB"
    as b report --json >report.json
    holds report.json '.gen == 2 and .rtype == 1 and .ptpls == 1 and .regctl == 2'
    holds report.json '[.regctlext[] | [.rkey, .rcsts]] == [[1, 1], [2, 0]]'
    conflict b acquire --crkey 2 --rtype 1
    as b acquire --crkey 2 --prkey 1 --racqa 2 --rtype 3
    as b report --numd 16 --json >report.json
    holds report.json '.rtype == 3 and .gen == 3 and .regctl == 1 and .regctlext == []'
    as b report >report.txt
    grep -q 'reservation: write-exclusive-reg-only' report.txt || { cat report.txt; fail 'another type'; }
    as a register --nrkey 7 --rrega replace --iekey
    as a release --crkey 7 --rrela clear
    as a report --eds --json >report.json
    holds report.json '.rtype == 0 and .regctl == 0'
}

