# shellcheck shell=bash disable=SC2086
# Runs in the guest: the kernel's host proves who it is to our target (DH-HMAC-CHAP), and has the target prove
# it as well. TARGETS: a word PORT:HASH:GROUP for each target, which allows nothing else; keys are in /share,
# HASH.host and HASH.target. The first target is also tried with wrong keys and without.
set -eu

modprobe nvme-tcp
echo 'file *nvme*auth* +p' >/sys/kernel/debug/dynamic_debug/control
printf '%015d\n' {0..255} >/tmp/data # 4 KiB of numbered lines
failed=0

now() { cut -d' ' -f1 /proc/uptime; }
fail() {
    echo "FAILED: $*"
    dmesg | tail -n 12
    failed=1
}

# connect PORT ARGUMENTS: a controller with one I/O queue
connect() { nvme connect -t tcp -a 10.0.2.2 -s "$1" -n "$NQN" -i 1 "${@:2}" >/tmp/connect.log 2>&1; }

# read_back: what was written over the connection
read_back() {
    for _ in $(seq 100); do [ ! -b /dev/nvme0n1 ] || break; sleep 0.1; done
    dd if=/tmp/data of=/dev/nvme0n1 bs=4k count=1 oflag=direct 2>/dev/null &&
        dd if=/dev/nvme0n1 bs=4k count=1 iflag=direct 2>/dev/null | cmp - /tmp/data
}

# works NAME QUEUES PORT ARGUMENTS: connects; so many queues have said that they are authenticated
works() {
    local begin count name=$1 queues=$2
    begin=$(now)
    dmesg -c >/dev/null
    connect "${@:3}" || { fail "$name: $(cat /tmp/connect.log)"; return 0; }
    read_back || fail "$name: data"
    count=$(dmesg | grep -c 'qid [0-9]*: authenticated') || true
    [ "$count" = "$queues" ] || fail "$name: $count queues"
    nvme disconnect -n "$NQN" >/dev/null
    echo "ok: $name, $begin to $(now)"
}

# refused NAME TEXT PORT ARGUMENTS: does not connect, and the kernel says so
refused() {
    local name=$1 text=$2
    dmesg -c >/dev/null
    ! connect "${@:3}" || { fail "$name: connects"; nvme disconnect -n "$NQN"; }
    dmesg | grep -qE "$text" || fail "$name: $(cat /tmp/connect.log)"
    echo "ok: $name, $(head -n 1 /tmp/connect.log)"
}

for target in $TARGETS; do
    IFS=: read -r port hash group <<<"$target"
    host=$(cat /share/$hash.host) controller=$(cat /share/$hash.target)
    works "$hash $group" 2 $port --dhchap-secret="$host"
    works "$hash $group, both" 2 $port --dhchap-secret="$host" --dhchap-ctrl-secret="$controller"
done

IFS=: read -r port hash group <<<"${TARGETS%% *}"
host=$(cat /share/$hash.host) controller=$(cat /share/$hash.target)
refused 'a wrong key' 'qid 0: authentication failed, error -129' $port --dhchap-secret="$(cat /share/wrong.host)"
refused 'no key' 'qid 0: no key' $port
refused 'the wrong key of the target' 'qid 0: controller authentication failed' $port --dhchap-secret="$host" \
    --dhchap-ctrl-secret="$(cat /share/wrong.host)"
works 'the right ones again' 2 $port --dhchap-secret="$host" --dhchap-ctrl-secret="$controller"

# Written to sysfs, a key is used at once, on both queues, while the controller lives on.
dmesg -c >/dev/null
connect $port --dhchap-secret="$host"
read_back || fail 'data'
dmesg -c >/dev/null
cntlid=$(cat /sys/class/nvme/nvme0/cntlid)
echo "$host" >/sys/class/nvme/nvme0/dhchap_secret
proofs() { dmesg | grep -c 'qid [01] auth_type 1 auth_id 3' || true; } # Success1 of a queue
for _ in $(seq 100); do
    [ "$(proofs)" -lt 2 ] || break
    sleep 0.1
done
[ "$(proofs)" = 2 ] && ! dmesg | grep -q 'authentication failed' || fail 'not authenticated again'
read_back || fail 'data after that'
[ "$(cat /sys/class/nvme/nvme0/cntlid)" = "$cntlid" ] && ! dmesg | grep -q 'error recovery' || fail 'connected anew'
nvme disconnect -n "$NQN" >/dev/null
echo "ok: again, $(now)"
exit $failed
