# shellcheck shell=bash
# Runs in a guest: the driver with the kernel's ublk and nvme-tcp, and calls in the order of kubelet. /share has the
# programs with their libraries, Python with gRPC, and the scripts of this folder.
set -eu

export LD_LIBRARY_PATH=/share/lib PATH=/share/bin:$PATH ROADTRAIN_RUNTIME_DIR=/tmp/runtime
export PYTHONHOME=/share/python PYTHONPATH=/share/packages
csi=/tmp/csi.sock rpc=/tmp/rpc.sock port=4420
mkdir -p /tmp/runtime /tmp/served /tmp/stores
modprobe -a nvme-tcp ublk_drv loop ext4 xfs
ip link set lo up

say() { echo "== $(cut -d' ' -f1 /proc/uptime) $*"; }
failed() { echo "failed: $*"; tail -n 40 /tmp/*.log; exit 1; }
until_line() { # LOG PATTERN PID
    local n
    for ((n = 0; n < 600; n++)); do
        ! grep -q "$2" "$1" || return 0
        kill -0 "$3" 2>/dev/null || failed "ended before it said '$2'"
        sleep 0.1
    done
    failed "never said '$2'"
}
serve() {
    : >/tmp/target.log
    ROADTRAIN_RUNTIME_DIR=/tmp/served roadtrain serve --rpc $rpc --state /tmp/state.toml \
        --lvstore vols=/tmp/stores/vols,size=4GiB --lvstore more=/tmp/stores/more,size=1GiB >>/tmp/target.log 2>&1 &
    target=$!
    until_line /tmp/target.log ^ready $target
}
driver() { # MODE
    : >/tmp/driver.log
    roadtrain-csi --endpoint unix://$csi --node-id node-1 --target 127.0.0.1:$port --rpc $rpc --store vols --store more \
        --attach "$1" --run-dir /tmp/node --log-level debug >>/tmp/driver.log 2>&1 &
    driver=$!
    until_line /tmp/driver.log ' ready ' $driver
}
end() { # SIGNAL PID
    kill "-$1" "$2"
    wait "$2" || true
}
kubelet() { ATTACH=$mode python3 /share/tests/kubelet.py $csi /share/proto "$1" /tmp/kubelet || failed "$1"; }
# nothing_left: no attachment, mount or disk
nothing_left() {
    ! ls /dev/ublkb* 2>/dev/null || failed 'an ublk device is left'
    ! ls -d /sys/class/nvme/nvme* 2>/dev/null || failed 'a controller is left'
    ! grep -F -e /tmp/kubelet -e /tmp/node /proc/self/mounts || failed 'a mount is left'
    [ -z "$(ls -A /tmp/node 2>/dev/null)" ] || failed "left: $(find /tmp/node)"
}

truncate -s 40G /tmp/stores.img
mkfs.xfs -q -m reflink=1 /tmp/stores.img
loop=$(losetup -f)
losetup "$loop" /tmp/stores.img
mount "$loop" /tmp/stores
for mode in kernel ublk; do
    say "$mode: stage, publish, write"
    serve
    driver $mode
    kubelet first
    case $mode in
    kernel) ls -d /sys/class/nvme/nvme* >/dev/null || failed 'the kernel has no controller' ;;
    ublk) ls /dev/ublkb* >/dev/null || failed 'there is no ublk device' ;;
    esac
    say "$mode: the driver is killed and started again"
    end KILL $driver
    driver $mode
    kubelet again
    if [ $mode = ublk ]; then
        say "$mode: the attachments are killed"
        pids=$(roadtrain list --json | tr ',{}' '\n' | sed -n '/"kind": *"attachment"/,/"pid"/s/.*"pid": *\([0-9]*\).*/\1/p')
        [ -n "$pids" ] || failed 'no attachment is listed'
        # shellcheck disable=SC2086
        kill -KILL $pids
    fi
    kubelet after_death
    say "$mode: the target is killed and started again"
    end KILL $target
    serve
    kubelet end
    nothing_left
    end TERM $driver
    end TERM $target
done
umount /tmp/stores
losetup -d "$loop"
