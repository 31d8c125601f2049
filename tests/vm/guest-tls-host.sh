# shellcheck shell=bash disable=SC1091,SC2086
# Runs in the guest: the kernel's host connects to our target over TLS. Its requests and replies pass through
# /share: HOST.tls are keys, restart and rekey are requests, restarted and rekeyed report them done. At
# CONCAT_PORT a key for TLS is made by authenticating with sha384.host, and wanted; the target has sha384.target.
. /job/tls.sh
set -eu

tls_up
printf '%015d\n' {0..4095} >/tmp/data # 64 KiB of numbered lines
DISCOVERY=nqn.2014-08.org.nvmexpress.discovery

step() { echo "--- $(cut -d' ' -f1 /proc/uptime) $*"; }
fail() {
    echo "FAILED: $*"
    grep -v 'Querying\|Parsing\|No cert' /tmp/tlshd.log | tail -n 20
    dmesg | grep nvme | tail -n 20
    exit 1
}

# key NAME HOSTNQN: have only that one in the keyring
key() {
    keyctl clear %:.nvme
    HOSTNQN=$2 tls_key "$NQN" "$(cat /share/$1.tls)" >/dev/null
    HOSTNQN=$2 tls_key $DISCOVERY "$(cat /share/$1.tls)" >/dev/null
}
connect() { nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" -i 2 "$@" >/tmp/connect.log 2>&1; }
live() { for _ in $(seq 300); do ! grep -q live /sys/class/nvme/nvme0/state || return 0; sleep 0.1; done; fail 'not live'; }
block() { for _ in $(seq 100); do [ ! -b /dev/nvme0n1 ] || return 0; sleep 0.1; done; fail 'no block device'; }
# verify BS SIZE: fio writes and reads back
verify() {
    fio --name=w --filename=/dev/nvme0n1 --rw=randwrite --bs=$1 --size=$2 --ioengine=libaio --iodepth=16 \
        --direct=1 --verify=crc32c --end_fsync=1 --eta=never --output=/tmp/fio || fail "fio $1: $(cat /tmp/fio)"
}

host_256=(-q nqn.2026-11.test:256 -I 00000000-0000-4000-8000-000000000256)
for suite in 256 384; do
    host=nqn.2026-11.test:$suite
    # Hosts with different names have different identifiers: the target binds one to the host that has proved its name.
    identifier=00000000-0000-4000-8000-000000000$suite
    key $suite $host
    step "SHA-$suite: discover"
    nvme discover -t tcp -a 10.0.2.2 -s "$PORT" -q $host -I $identifier --tls >/tmp/log 2>&1 || fail "$(cat /tmp/log)"
    grep -q "sectype: tls13" /tmp/log && grep -q 'treq: *required' /tmp/log || fail "$(cat /tmp/log)"
    step "SHA-$suite: connect"
    digests=''
    [ $suite = 256 ] || digests='--hdr-digest --data-digest'
    connect -q $host -I $identifier --tls $digests || fail "$(cat /tmp/connect.log)"
    block
    [ -n "$(cat /sys/class/nvme/nvme0/tls_key)" ] || fail 'not secured'
    verify 4k 1M
    verify 256k 4M
    nvme disconnect -n "$NQN" >/dev/null
done

step 'refused'
# refused TEXT ARGUMENTS: does not connect, and nvme-cli or the kernel says so
refused() {
    dmesg -c >/dev/null
    ! connect "${host_256[@]}" "${@:2}" || fail "connects: $1"
    dmesg | cat - /tmp/connect.log | grep -q "$1" || fail "$(cat /tmp/connect.log)"
    echo "ok: $1"
}
refused 'no valid PSK found\|key is missing' --tls
key wrong nqn.2026-11.test:256
refused 'TLS handshake complete, error -13' --tls
refused 'failed to receive icresp'

step 'the target is killed and comes back'
key 256 nqn.2026-11.test:256
connect "${host_256[@]}" --tls --reconnect-delay=1 --ctrl-loss-tmo=60 || fail "$(cat /tmp/connect.log)"
block
dd if=/tmp/data of=/dev/nvme0n1 bs=64k count=1 oflag=direct 2>/dev/null
touch /share/restart
until [ -e /share/restarted ]; do sleep 0.1; done
dd if=/dev/nvme0n1 bs=64k count=1 iflag=direct 2>/dev/null | cmp - /tmp/data || fail 'other data'
live

# The connection that is there lives on; the next one needs the new key.
step 'the key changes'
touch /share/rekey
until [ -e /share/rekeyed ]; do sleep 0.1; done
dd if=/dev/nvme0n1 bs=64k count=1 iflag=direct 2>/dev/null | cmp - /tmp/data || fail 'other data'
key new nqn.2026-11.test:256
nvme reset /dev/nvme0 || fail reset
live
dd if=/dev/nvme0n1 bs=64k count=1 iflag=direct 2>/dev/null | cmp - /tmp/data || fail 'other data'
nvme disconnect -n "$NQN" >/dev/null

step 'authentication makes the key'
keyctl clear %:.nvme
PORT=$CONCAT_PORT
refused 'authentication failed, error -129' --concat --dhchap-secret="$(cat /share/wrong.host)"
refused 'secure concatenation is not supported' --dhchap-secret="$(cat /share/sha384.host)"
connect "${host_256[@]}" --concat --dhchap-secret="$(cat /share/sha384.host)" || fail "$(cat /tmp/connect.log)"
block
[ -n "$(cat /sys/class/nvme/nvme0/tls_key)" ] || fail 'not secured'
verify 4k 1M
dd if=/tmp/data of=/dev/nvme0n1 bs=64k count=1 oflag=direct 2>/dev/null
nvme reset /dev/nvme0 || fail reset
live
dd if=/dev/nvme0n1 bs=64k count=1 iflag=direct 2>/dev/null | cmp - /tmp/data || fail 'other data'
nvme disconnect -n "$NQN" >/dev/null

# The kernel accepts this key, and does not request the proof.
step "with the target's key"
connect "${host_256[@]}" --concat --dhchap-secret="$(cat /share/sha384.host)" \
    --dhchap-ctrl-secret="$(cat /share/sha384.target)" || fail "$(cat /tmp/connect.log)"
block
[ -n "$(cat /sys/class/nvme/nvme0/tls_key)" ] || fail 'not secured'
dd if=/dev/nvme0n1 bs=64k count=1 iflag=direct 2>/dev/null | cmp - /tmp/data || fail 'other data'
nvme disconnect -n "$NQN" >/dev/null
grep -h -o 'AES-[0-9]*-GCM' /tmp/tlshd.log | sort | uniq -c
[ "$(grep -h -o 'AES-[0-9]*-GCM' /tmp/tlshd.log | sort -u | wc -l)" = 2 ] || fail 'not both suites'
step 'all passed'
