# shellcheck shell=bash disable=SC1091,SC2016,SC2034,SC2086
# Runs in the guest: the kernel's target, over TLS only, for the hosts nqn.2026-11.test:256 and :384, whose keys are
# /share/256.tls and 384.tls. Files in /share request its further actions: away, back, rekey (the key of the
# first host becomes /share/new.tls), end. Each goes away when it is done. Port 4421 takes connections without TLS,
# too, for the hosts nqn.2026-11.test:concat-256 and -384, which make their keys with /share/sha256.host and sha384.host;
# the target has sha256.target and sha384.target for those that request its proof.
. /job/tls.sh
set -eu

tls_up
DISCOVERY=nqn.2014-08.org.nvmexpress.discovery
# key NAME HOST: into the keyring
key() {
    local subsystem
    for subsystem in "$NQN" $DISCOVERY; do
        HOSTNQN=nqn.2026-11.test:$2 tls_key $subsystem "$(cat /share/$1.tls)" >/dev/null
    done
}
key 256 256
key 384 384
SETUP='echo tls1.3 >$port/addr_tsas; echo required >$port/addr_treq'
THEN=:
. /job/target.sh
echo 0 >nvmet/subsystems/$NQN/attr_allow_any_host
for suite in 256 384; do
    mkdir nvmet/hosts/nqn.2026-11.test:$suite
    ln -s /sys/kernel/config/nvmet/hosts/nqn.2026-11.test:$suite nvmet/subsystems/$NQN/allowed_hosts/
done
second=nvmet/ports/2
mkdir $second
echo tcp >$second/addr_trtype
echo ipv4 >$second/addr_adrfam
echo 0.0.0.0 >$second/addr_traddr
echo 4421 >$second/addr_trsvcid
echo tls1.3 >$second/addr_tsas
echo 'not required' >$second/addr_treq
ln -s /sys/kernel/config/nvmet/subsystems/$NQN $second/subsystems/
for suite in 256 384; do
    host=nvmet/hosts/nqn.2026-11.test:concat-$suite
    mkdir $host
    cat /share/sha$suite.host >$host/dhchap_key
    cat /share/sha$suite.target >$host/dhchap_ctrl_key
    echo "hmac(sha$suite)" >$host/dhchap_hash
    echo ffdhe2048 >$host/dhchap_dhgroup
    ln -s /sys/kernel/config/$host nvmet/subsystems/$NQN/allowed_hosts/
done
echo READY TLS
dmesg -n 1
until [ -e /share/end ]; do
    for order in away back rekey; do
        [ -e /share/$order ] || continue
        case $order in
        away) rm $port/subsystems/$NQN ;;
        back) ln -s /sys/kernel/config/nvmet/subsystems/$NQN $port/subsystems/ ;;
        rekey) keyctl clear %:.nvme && key new 256 && key 384 384 ;;
        esac
        rm /share/$order
    done
    sleep 0.1
done
dmesg | grep nvme | tail -n 20
grep -c 'succeeded' /tmp/tlshd.log
