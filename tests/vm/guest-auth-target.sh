# shellcheck shell=bash disable=SC2034,SC2086
# Runs in the guest: the kernel's target authenticates hosts (DH-HMAC-CHAP). HOSTS: a word
# HASH:GROUP for each; the host nqn.2026-11.test:HASH-GROUP may use nothing else. Keys are in /share,
# HASH.host and HASH.target. The host nqn.2026-11.test:alone has no key of the target.
set -eu

THEN=:
. /job/target.sh
for said in authenticated mismatch failure1 'no ctrl'; do
    echo "file *nvme*auth* format '$said' +p" >/sys/kernel/debug/dynamic_debug/control
done

# host NAME HASH GROUP: may connect
host() {
    local host=nvmet/hosts/nqn.2026-11.test:$1
    mkdir $host
    cat /share/$2.host >$host/dhchap_key
    [ $1 = alone ] || cat /share/$2.target >$host/dhchap_ctrl_key
    echo "hmac($2)" >$host/dhchap_hash
    echo $3 >$host/dhchap_dhgroup
    ln -s /sys/kernel/config/$host nvmet/subsystems/$NQN/allowed_hosts/
}

echo 0 >nvmet/subsystems/$NQN/attr_allow_any_host
for name in $HOSTS; do host ${name/:/-} ${name%:*} ${name#*:}; done
host alone ${HOSTS%%:*} null
echo READY AUTHENTICATION
dmesg -n 1
until [ -e /share/end ]; do sleep 0.2; done
dmesg | grep nvmet >/share/dmesg
