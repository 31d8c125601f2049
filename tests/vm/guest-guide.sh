# shellcheck shell=bash disable=SC1091
# Runs in the guest: the commands in /share/commands, one a line, like a reader who follows the guide. The machine
# is target and host in one, at the address that the guide has.
. /job/tls.sh
set -eu

cp -r /share/roadtrain /share/lib /tmp
roadtrain() { /tmp/lib/ld-linux-x86-64.so.2 --library-path /tmp/lib /tmp/roadtrain "$@"; }
ip addr add 192.0.2.1/24 dev lo
echo '192.0.2.1 target' >>/etc/hosts
tls_up
modprobe loop

while read -r command; do
    echo "$ $command"
    case $command in
    'roadtrain serve '*)
        : >/tmp/serve.log # now: nobody may read what the one before said
        eval "$command" >/tmp/serve.log 2>&1 &
        until grep -q '^ready' /tmp/serve.log; do
            kill -0 $! || { cat /tmp/serve.log; exit 1; }
            sleep 0.1
        done
        ;;
    *) eval "$command" || { dmesg | tail -n 5; cat /tmp/serve.log; exit 1; } ;;
    esac
done </share/commands

for _ in $(seq 100); do [ ! -b /dev/nvme0n1 ] || break; sleep 0.1; done
printf '%015d\n' {0..4095} >/tmp/data
dd if=/tmp/data of=/dev/nvme0n1 bs=64k count=1 oflag=direct 2>/dev/null
dd if=/dev/nvme0n1 bs=64k count=1 iflag=direct 2>/dev/null | cmp - /tmp/data
[ -n "$(cat /sys/class/nvme/nvme0/tls_key)" ]
cat /tmp/serve.log
grep -q ' authenticated .*qid=0' /tmp/serve.log
! grep -q 'WARN' /tmp/serve.log
ip addr del 192.0.2.1/24 dev lo
