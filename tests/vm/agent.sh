# shellcheck shell=bash
# Runs in a guest: runs the scripts that guests.sh puts into the share, one after the other, each on a clean machine.
# A job is a folder jobs/N: script, vars (its variables), share (names the folder that is its /share), output; status
# comes last: the script's status, and `clean` or what is left over. The share holds `end` when there are no more jobs.

mkdir /guest
mount -o move /share /guest
cp -a /etc /etc.before
mounts=$(cut -d' ' -f2 /proc/mounts)
# Addresses and routes. Those of IPv6 and states of links change by themselves.
network() { (ip -4 address show | grep inet; ip route show) | sed 's/ linkdown//'; }
addresses=$(network)
PATTERN='^(nvme|nvmet|null_blk|brd|loop|nbd|ublk)'

# remove_targets: all of the kernel's target, which a script leaves as it was
remove_targets() {
    cd /sys/kernel/config/nvmet 2>/dev/null || return 0
    rm -f ports/*/subsystems/* subsystems/*/allowed_hosts/*
    rmdir ports/* subsystems/*/namespaces/* subsystems/* hosts/* ../nullb/nullb*
    cd /
} 2>/dev/null

# leftovers: prints what is not as it was when the guest came up
leftovers() {
    [ "$(cut -d' ' -f2 /proc/mounts)" = "$mounts" ] || echo "mounts: $(cut -d' ' -f2 /proc/mounts | xargs)"
    [ "$(network)" = "$addresses" ] || echo "network: $(network | xargs)"
    awk -v wanted="$PATTERN" '$1 ~ wanted {print "module: " $1}' /proc/modules
}

clean() {
    local n
    kill -KILL -1 # all but this process and init
    wait
    echo 4 >/proc/sys/kernel/printk
    for n in $(seq 100); do
        umount /mnt /share 2>/dev/null
        [ ! -e /dev/nvme-fabrics ] || nvme disconnect-all
        remove_targets
        awk -v wanted="$PATTERN" '$1 ~ wanted && $3 == 0 {print $1}' /proc/modules | xargs -r rmmod
        [ -n "$(leftovers)" ] || break
        sleep 0.1
    done >/dev/null 2>&1
    ip neigh flush dev eth0 # another test has other machines at the same addresses
    cp -a /etc.before/. /etc
    rm -rf /tmp/* /root/* /run/*
    dmesg -c >/dev/null
}

touch /guest/up
for ((job = 0; ; job++)); do
    at=/guest/jobs/$job
    until [ -e $at ]; do
        [ ! -e /guest/end ] || exit 0
        sleep 0.1
    done
    [ ! -e $at/share ] || mount -o bind "/guest/shares/$(cat $at/share)" /share
    (cd /root && set -a && . $at/vars && exec bash $at/script) </dev/null >$at/output 2>&1
    status=$?
    [ $status = 0 ] || dmesg | tail -n 30 >>$at/output
    clean
    left=$(leftovers)
    echo "$status ${left:-clean}" >$at/status.new
    mv $at/status.new $at/status
done
