#!/bin/bash
# cluster.sh: a real one-machine Ceph cluster on loopback, for tests of code that uses librbd.
#
#   cluster.sh start DIR [--osds N] [--store memstore|bluestore] [--size GiB] [--auth none|cephx] [--address IPv4]
#   cluster.sh exec DIR -- CMD...        run CMD with CEPH_CONF set (rbd, ceph, fio, your tests)
#   cluster.sh kill-osd DIR N [SIGNAL]   KILL = crash (default), STOP = freeze, TERM = clean stop
#   cluster.sh start-osd DIR N           start it again, or thaw it
#   cluster.sh stop DIR                  end what `start` started; data stay, `start DIR` resumes
#
# One monitor, N OSDs (1 to 9, default 1), a pool `rbd` with min(N, 3) copies; no manager, no systemd,
# no root. Each cluster has an address of its own in 127/8 unless it is given one, so several run side by side. All
# state is in DIR: ceph.conf, keyring, log/, run/ (pid files, admin sockets), mon.a/, osd.N/: `stop` before you
# delete it. --size is per OSD. memstore (default) keeps data in RAM: they survive `stop`, but not the
# crash of their only OSD; bluestore is a sparse file. --auth cephx makes the users client.admin and
# client.tenant (RBD rights on the pool rbd only, which is what a target should run with).
set -Eeuo pipefail
unset CEPH_ARGS CEPH_CONF

die() { echo "cluster: $*" >&2; exit 1; }
usage() { sed -n '4,8s/^# *//p' "$0" >&2; exit 2; }
tool() { timeout --foreground 60 "$1" -c "$conf" "${@:2}"; } # tool ceph|rbd ARG...

require_programs() {
    local pair missing=''
    for pair in ceph-mon:ceph-mon ceph-osd:ceph-osd monmaptool:ceph-base ceph:ceph-common \
        rbd:ceph-common ceph-authtool:ceph-common uuidgen:uuid-runtime; do
        command -v "${pair%:*}" >/dev/null || [[ "$missing " == *" ${pair#*:} "* ]] || missing+=" ${pair#*:}"
    done
    [ -z "$missing" ] || die "programs missing; apt-get install --no-install-recommends$missing"
}

# daemon NAME [ARG...]: runs mon.a or osd.N. It goes into the background once it is initialised and
# has a pid file, so the exit status shows whether it started. No signal may interrupt it before that
# (a half-started one would escape `stop`), and fds 3 and 4 (see start) are not for it to keep.
daemon() (
    trap '' INT TERM HUP
    exec "ceph-${1%.*}" -i "${1#*.}" -c "$conf" --log-file "$dir/log/$1.log" --pid-file "$dir/run/$1.pid" \
        --admin-socket "$dir/run/$1.asok" "${@:2}" </dev/null 3>&- 4>&-
)

# Prints the pid of daemon $1 if it runs: a process of this cluster, not a reused number.
pid_of() {
    local pid
    pid=$(cat "$dir/run/$1.pid" 2>/dev/null) && [ -n "$pid" ] &&
        tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- " -c $conf " && echo "$pid"
}

# end NAME SIGNAL: the daemon is gone when this returns, by force after 20 s. CONT wakes a frozen one.
end() {
    local pid i
    for ((i = 0; i < 210; i++)); do
        pid=$(pid_of "$1") || break
        if ((i == 0)); then kill -s "$2" "$pid" && kill -s CONT "$pid"; fi 2>/dev/null || true
        ((i != 200)) || kill -s KILL "$pid"
        sleep 0.1
    done
    rm -f "$dir/run/$1.pid"
}

# Waits until OSD $1 answers; one that has just started is not in the map at once.
wait_osd() {
    local i
    for ((i = 0; i < 30; i++)); do
        ! timeout --foreground 5 ceph -c "$conf" tell "$1" version >/dev/null 2>&1 || return 0
        sleep 0.5
    done
    die "$1 does not answer; see $dir/log"
}

# OSDs first: they report to the monitor as they close.
stop() {
    local file
    for file in "$dir"/run/osd.*.pid "$dir"/run/mon.*.pid; do end "$(basename "$file" .pid)" TERM; done
}

write_conf() {
    local addr=${address:-127.$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1))}
    cat >"$conf" <<CONF
[global]
fsid = $(uuidgen)
mon host = [v2:$addr:3300/0]
public addr = $addr
auth cluster required = $auth
auth service required = $auth
auth client required = $auth
auth allow insecure global id reclaim = false
keyring = $dir/keyring
mon data = $dir/\$name
osd data = $dir/\$name

# One host: copies go to different OSDs, and one OSD is enough to report another as dead.
osd crush chooseleaf type = 0
osd crush initial weight = 1
mon osd min down reporters = 1
mon osd reporter subtree level = osd
osd heartbeat interval = 2
osd heartbeat grace = 10
# An OSD that was frozen for longer than its read lease (0.8 of the grace) serves again when other copies have answered.
# Where there are none, requests may wait for ever.
osd pool default read lease ratio = $( ((osds == 1)) && echo 10 || echo 0.8)
osd pool default size = $((osds < 3 ? osds : 3))
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon warn on pool no redundancy = false
mon allow pool delete = true
mon osd initial require min compat client = nautilus

# Quick to start, small, and content with a full disk: map changes wait 0.1 s (normally 1 s).
paxos propose interval = 0.1
mon data avail warn = 0
mon data avail crit = 0
debug rocksdb = 0
osd objectstore = $store
memstore device bytes = $((size << 30))
memstore page set = true
bluestore block size = $((size << 30))
bluestore fsck on mkfs = false
bdev aio poll ms = 20
bluestore cache autotune = false
bluestore cache size = $((64 << 20))
# Memstore writes its data to DIR as it closes, which a fast shutdown leaves out.
osd fast shutdown = $([ "$store" = memstore ] && echo false || echo true)
CONF
}

create() {
    local id uuid map=$dir/run/monmap key=(ceph-authtool "$dir/keyring" --gen-key)
    write_conf
    "${key[@]}" --create-keyring -n mon. --cap mon 'allow *'
    "${key[@]}" -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
    "${key[@]}" -n client.tenant --cap mon 'profile rbd' --cap osd 'profile rbd pool=rbd'
    for ((id = 0; id < osds; id++)); do
        "${key[@]}" -n "osd.$id" --cap mon 'allow profile osd' --cap osd 'allow *'
    done
    monmaptool --create --fsid "$(sed -n 's/^fsid = //p' "$conf")" \
        --addv a "$(sed -n 's/^mon host = //p' "$conf")" "$map"
    daemon mon.a --mkfs --monmap "$map" --keyring "$dir/keyring"
    daemon mon.a
    for ((id = 0; id < osds; id++)); do
        uuid=$(uuidgen)
        tool ceph osd new "$uuid" "$id"
        mkdir "$dir/osd.$id"
        daemon "osd.$id" --mkfs --osd-uuid "$uuid"
        daemon "osd.$id"
    done
    tool ceph osd pool create rbd
}

resume() {
    local osd
    daemon mon.a
    for osd in "$dir"/osd.?; do daemon "${osd##*/}"; done
}

# Runs when a start ends early, for whatever reason: ends its daemons and shows why. Logs stay.
undo() {
    trap '' INT TERM HUP
    stop
    [ "$how" = resume ] || rm -rf "$conf" "$dir"/{keyring,run,mon.a,osd.?}
    tail -n 15 "$dir/log/start.out" >&4
    echo "cluster: $how failed; logs are in $dir/log" >&4
}

start() {
    local osd osds=1 store=memstore size=4 auth=none address=''
    while (($#)); do
        case $1=${2-} in
            --osds=[1-9]) osds=$2 ;;
            --store=memstore | --store=bluestore) store=$2 ;;
            --size=[1-9] | --size=[1-9][0-9] | --size=[1-9][0-9][0-9]) size=$2 ;;
            --auth=none | --auth=cephx) auth=$2 ;;
            --address=*.*.*.*) address=$2 ;;
            *) usage ;;
        esac
        shift 2
    done
    require_programs
    ! pid_of mon.a >/dev/null || die "a cluster runs in $dir already"
    how=resume
    if [ ! -e "$dir/ready" ]; then
        how=create
        [ -z "$(find "$dir" -mindepth 1 ! -path "$dir/log*" 2>/dev/null)" ] || die "$dir is not empty"
    fi
    mkdir -p "$dir/log" "$dir/run"
    exec 3>&1 4>&2 >"$dir/log/start.out" 2>&1
    trap undo EXIT
    trap 'exit 130' INT TERM HUP
    $how
    for osd in "$dir"/osd.?; do wait_osd "${osd##*/}"; done
    tool rbd pool init rbd # it writes and reads, so I/O works
    touch "$dir/ready"
    trap - EXIT INT TERM HUP
    echo "ready CONF=$conf" >&3
}

(($# >= 2)) || usage
command=$1 dir=$(realpath -m -- "$2") conf=$dir/ceph.conf osd=osd.${3-}
shift 2
[[ $dir =~ ^[[:alnum:]/._+-]+$ ]] || die "DIR may hold letters, digits and /._+- only, not: $dir"
((${#dir} <= 90)) || die "DIR is longer than 90 characters, too long for the sockets in it: $dir"
[[ $command =~ ^(start|stop)$ || -e $conf ]] || die "there is no cluster in $dir"
[[ $command != *-osd || -d $dir/$osd ]] || die "there is no $osd in $dir"
case $command in
    start) start "$@" ;;
    stop) stop ;;
    exec)
        [ "${1-}" != -- ] || shift
        (($#)) || usage
        CEPH_CONF=$conf exec "$@"
        ;;
    kill-osd)
        kill -l "${2:-KILL}" >/dev/null || usage
        pid=$(pid_of "$osd") || die "$osd does not run"
        [[ ${2:-KILL} != KILL || -d $dir/osd.1 ]] || grep -q 'objectstore = bluestore' "$conf" ||
            die "a crash of the only memstore OSD loses the pool: use --store bluestore, --osds 2, TERM or STOP"
        if [ "${2-}" = STOP ]; then kill -s STOP "$pid"; else end "$osd" "${2:-KILL}"; fi
        ;;
    start-osd)
        if pid=$(pid_of "$osd"); then
            kill -s CONT "$pid"
        else
            daemon "$osd" >>"$dir/log/start.out" 2>&1 || die "$osd failed; see $dir/log"
        fi
        wait_osd "$osd"
        ;;
    *) usage ;;
esac
