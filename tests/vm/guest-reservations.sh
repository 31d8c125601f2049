# shellcheck shell=bash
# Runs in the guest: the kernel as two hosts, which share a disk by reservations. The target is killed and started
# again in between; both request that by files in /share.
set -eu

one=11111111-2222-4333-8444-555555555551
two=11111111-2222-4333-8444-555555555552
await() { # await SECONDS COMMAND...
    local n
    for n in $(seq $(($1 * 10))); do if "${@:2}"; then return 0; fi; sleep 0.1; done
    echo "never: ${*:2}"
    return 1
}
is_there() { [ -b "$1" ]; }
is_file() { [ -e "$1" ]; }
connect() { # connect HOSTID: nvme-cli knows one connection to an address
    local options=transport=tcp,traddr=10.0.2.2,trsvcid=$PORT,nqn=$NQN,nr_io_queues=1,reconnect_delay=1
    echo "$options,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$1,hostid=$1" >/dev/nvme-fabrics
}
writes() { dd if=/dev/zero of="$1" bs=64k count=4 oflag=direct 2>/dev/null; }
reads() { dd if="$1" of=/dev/null bs=64k count=4 iflag=direct 2>/dev/null; }
refused() { if "$@"; then echo "not refused: $*"; return 1; fi; }
conflict() { # conflict COMMAND...: ends with Reservation Conflict
    local said
    if said=$("$@" 2>&1); then echo "not refused: $*"; return 1; fi
    case $said in
    *[Cc]onflict* | *0x4083* | *0x83*) ;;
    *)
        echo "$*: $said"
        return 1
        ;;
    esac
}
has_written() { [ "$(awk '{print $5}' /sys/block/nvme0n1/stat)" -gt $((before + $1)) ]; } # WRITES, since $before
check() { # check DEVICE ANSWER: aa, ac, cc: reads, writes; a: allowed, c: conflict
    local did=
    if reads "$1"; then did=a; else did=c; fi
    if writes "$1"; then did=${did}a; else did=${did}c; fi
    [ "$did" = "$2" ] || {
        echo "$1: $did instead of $2"
        return 1
    }
}
report() { nvme resv-report "$1" --eds -o json | tr -d ' \n\t'; }
says() { # says DEVICE TEXT...: the report has every text
    local got text
    got=$(report "$1")
    for text in "${@:2}"; do
        case $got in *"$text"*) ;; *)
            echo "$1: $text is not in $got"
            return 1
            ;;
        esac
    done
}

modprobe nvme-core multipath=N # two hosts here are two disks
modprobe nvme-tcp
connect $one
await 20 is_there /dev/nvme0n1
connect $two
await 20 is_there /dev/nvme1n1
a=/dev/nvme0n1 b=/dev/nvme1n1

conflict nvme resv-acquire $a --crkey=0xa --rtype=1 --racqa=0
nvme resv-register $a --nrkey=0xa --rrega=0 --cptpl=3
# Every type: what a host may do that is not registered, and one that is; who holds it may do all.
n=0
for row in ac:ac cc:cc ac:aa cc:aa ac:aa cc:aa; do
    n=$((n + 1))
    nvme resv-acquire $a --crkey=0xa --rtype=$n --racqa=0
    check $a aa
    check $b "${row%:*}"
    nvme resv-register $b --nrkey=0xb --rrega=0
    check $b "${row#*:}"
    nvme resv-release $a --crkey=0xa --rtype=$n --rrela=0
    check $b aa
    nvme resv-register $b --crkey=0xb --rrega=1
done

# It outlives the target.
nvme resv-register $b --nrkey=0xb --rrega=0
nvme resv-acquire $a --crkey=0xa --rtype=1 --racqa=0
conflict nvme resv-acquire $b --crkey=0xb --rtype=1 --racqa=0
says $b '"rtype":1' '"regctl":2' '"ptpls":1'
touch /share/reserved
await 60 is_file /share/restarted
await 60 says $b '"rtype":1' '"regctl":2' '"ptpls":1'
await 30 reads $a
check $a aa
check $b ac

# Taken over, with what the other one has under way.
before=$(awk '{print $5}' /sys/block/nvme0n1/stat)
fio --name=load --filename=$a --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --size=32m --iodepth=16 \
    --time_based --runtime=30 --eta=never >/dev/null 2>&1 &
await 60 has_written 50
nvme resv-acquire $b --crkey=0xb --prkey=0xa --rtype=1 --racqa=2
refused wait $! # its writes are refused from now on
check $a ac
check $b aa
says $b '"rtype":1' '"regctl":1'
nvme resv-notif-log /dev/nvme0 || true # not in every nvme-cli
nvme resv-register $a --nrkey=0xc --rrega=2 --iekey
nvme resv-release $a --crkey=0xc --rtype=1 --rrela=1
says $a '"rtype":0' '"regctl":0'
check $a aa
nvme disconnect -n "$NQN"
