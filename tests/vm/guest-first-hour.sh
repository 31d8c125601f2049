# shellcheck shell=bash
# Runs in the guest, which is target and host in one: the commands of the first hour in /share/blocks, as they stand.
set -eu

# The program as a command; the guest may have other libraries.
mkdir /tmp/bin
cp -r /share/roadtrain /share/lib /tmp
printf '#!/bin/sh\nexec /tmp/lib/ld-linux-x86-64.so.2 --library-path /tmp/lib /tmp/roadtrain "$@"\n' >/tmp/bin/roadtrain
chmod +x /tmp/bin/roadtrain
export HOME=/root PATH=/tmp/bin:$PATH
modprobe ext4 # busybox's mount tries what the kernel has already

for block in /share/blocks/*.sh; do
    echo "== $block"
    (cd && bash -ex "$block") || { cat ~/*/serve.log; exit 1; }
done
[ ! -e ~/roadtrain-first-hour ]
rmdir /mnt/first-hour
