# shellcheck shell=bash
# The frames of -t ether over TCP connections: the point of comparison.

over() { "$ROADTRAIN" "$1" -t tsockets -a 127.0.0.1 -s "$port" "${@:2}"; }

test_tsockets_finds_its_target() {
    serve -t tsockets --namespace mem:64MiB
    grep -q 'ready tsockets:127.0.0.1 ' target.log
    over discover --json >discover.json
    holds discover.json '[.records[] | select(.trtype == "tsockets").subnqn] | index($nqn) != null' --arg nqn "$nqn"
    over identify -n "$nqn" --json >identify.json
    holds identify.json '[.namespaces[].bytes] == [67108864]'
}

test_tsockets_verified() {
    serve -t tsockets --namespace mem:256MiB --namespace "file:$work/a.img,size=128MiB" --cores 0,1
    local bs nsid
    for bs in 512 4k 128k 1M; do
        for nsid in 1 2; do
            over bench -n "$nqn" --nsid $nsid --rw randrw --bs $bs --depth 16 --lanes 3 --cores 0,1 --ddgst \
                --seconds 1 --verify --json >bench.json
            holds bench.json '.errors == 0 and .iops > 0 and .blocks_checked > 0'
        done
    done
}

test_tsockets_target_killed_and_back() {
    serve -t tsockets --namespace "file:$work/a.img,size=128MiB"
    over bench -n "$nqn" --rw randrw --bs 4k --depth 8 --seconds 6 --verify --json >bench.json &
    local bench=$!
    sleep 2
    kill -KILL "$target"
    sleep 1
    serve -t tsockets --namespace "file:$work/a.img"
    wait $bench
    holds bench.json '.errors == 0 and .iops > 0'
}

test_tsockets_under_nbd() {
    serve -t tsockets --namespace mem:64MiB
    background attach.log "$ROADTRAIN" attach -t tsockets -a 127.0.0.1 -s "$port" -n "$nqn" \
        --as "nbd:unix:$work/nbd.sock"
    local attached=$pid
    until_line attach.log '^ready' "$attached"
    fio --name=nbd --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd.sock" --rw=randrw --size=64M \
        --bssplit=512/20:4k/40:7k/20:256k/20 --iodepth=16 --verify=crc32c --verify_fatal=1 --time_based \
        --runtime=2 --fsync=64 --eta=never >fio.log 2>&1 || { cat fio.log; fail 'fio is not content'; }
    kill "$attached"
    ended "$attached" 10
}
