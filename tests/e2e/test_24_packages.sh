# shellcheck shell=bash
# Debian packages, in a copy of this machine that is gone afterwards: an overlay over its files, with processes, network
# and mounts of its own. systemd does not run there: the unit's command is started as the unit says.

# in_machine COMMAND...: in that copy, whose changes are in $work/changes
in_machine() {
    unshare --mount --pid --fork --kill-child --net --propagation private "$BASH" -euc '
        work=$1 && shift
        mount -t tmpfs machine "$work/machine"
        cd "$work/machine" && mkdir changes made root
        mount -t overlay machine -o lowerdir=/,upperdir=changes,workdir=made root
        mount -t proc proc root/proc
        mount -t sysfs sys root/sys
        mount --rbind /dev root/dev
        mount -t tmpfs run root/run
        mount -t tmpfs tmp root/tmp
        cp -r "$work/debs" root/tmp/debs
        cp "$work/inside.sh" root/tmp
        ip link set lo up
        rc=0
        chroot root "$@" || rc=$?
        (cd changes && find . -type f -printf "%P\n" | sort) >"$work/left"
        exit $rc
    ' machine "$work" "$@"
}

# What happens there.
inside() {
    cat <<'INSIDE'
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
unset ROADTRAIN_RUNTIME_DIR  # root finds the service by itself
nqn=nqn.2025-01.io.example:disk
unit=/lib/systemd/system/roadtrain-serve.service
end_with() { echo "failed: $*"; cat /tmp/*.log 2>/dev/null; exit 1; }
dpkg() { command dpkg --no-triggers "$@" >>/tmp/dpkg.out 2>&1 || { cat /tmp/dpkg.out; end_with "dpkg $*"; }; }
value() { sed -n "s/^$1=//p" "$unit"; }

dpkg -i /tmp/debs/first/roadtrain_*.deb
man -w roadtrain-serve >/dev/null 2>&1 || [ -e /usr/share/man/man1/roadtrain-serve.1.gz ]
systemd-analyze verify "$unit" /lib/systemd/system/roadtrain-attach@.service \
    /lib/systemd/system/roadtrain-serve@.service 2>/tmp/verify.log || end_with 'a unit is wrong'
! grep roadtrain /tmp/verify.log || end_with 'a unit is wrong'
[ "$(stat -c %U:%a /var/lib/roadtrain)" = roadtrain:750 ] || end_with 'the folder of disks is not its own'
# What an administrator changes stays.
echo '# ours' >>/etc/roadtrain/serve.toml

# Files may be opened by JSON-RPC below a folder: one line to uncomment, as docs/guide/manage.md says.
sed -i 's/^# file_roots/file_roots/' /etc/roadtrain/serve.toml
install -d -o roadtrain -g roadtrain -m 0750 /var/lib/roadtrain/images
truncate -s 64M /var/lib/roadtrain/images/more.img && chown roadtrain: /var/lib/roadtrain/images/more.img

# As systemd would start it: user, folder, no capabilities, no new ones.
install -d -o roadtrain -g roadtrain -m "$(value RuntimeDirectoryMode)" /run/roadtrain-serve
as_service() {
    (cd "$(value WorkingDirectory)" && exec setpriv --reuid "$(value User)" --regid "$(value Group)" --init-groups \
        --bounding-set=-all --inh-caps=-all --no-new-privs env "$(value Environment)" "$@")
}
read -ra command <<<"$(value ExecStart)"
as_service "${command[@]}" >/tmp/serve.log 2>&1 &
until grep -q '^ready' /tmp/serve.log; do kill -0 $! || end_with 'the service has ended'; sleep 0.1; done
first=$!
[ "$(stat -c %U:%s /var/lib/roadtrain/disk.img)" = roadtrain:1073741824 ] || end_with 'no disk'

# Root and its own user manage it without options; no other user can.
more=nqn.2025-01.io.example:more
by_root() { roadtrain ctl "$@" >/tmp/ctl.log 2>&1 || end_with "ctl $*"; }
[ "$(stat -c %U:%a /run/roadtrain-serve/rpc.sock)" = roadtrain:600 ] || end_with 'the socket is for others, too'
! setpriv --reuid nobody --regid nogroup --clear-groups roadtrain ctl device list 2>/tmp/ctl.log || end_with 'anybody manages it'
by_root device add more file:/var/lib/roadtrain/images/more.img
by_root subsystem add -n $more
by_root namespace add -n $more device:more
by_root listener add -n $more -a 127.0.0.1:4421
! roadtrain ctl device add odd file:/etc/passwd 2>/tmp/ctl.log || end_with 'any file is opened'
as_service roadtrain ctl subsystem list --json | jq -e --arg n $more '.[] | select(.nqn == $n)' >/dev/null || end_with 'not shown'
[ -z "$(ss -Hltn 'sport != :4420 and sport != :4421')" ] || end_with 'it listens elsewhere'

# A program in C is built with the packages of the library, and runs with them.
dpkg -i /tmp/debs/first/libroadtrain0_*.deb /tmp/debs/first/libroadtrain-dev_*.deb
# shellcheck disable=SC2046
gcc -o /tmp/program /tmp/debs/program.c $(pkg-config --cflags --libs roadtrain) 2>/tmp/gcc.log || end_with 'no program'
[ "$(timeout 60 /tmp/program 127.0.0.1:4421 $more)" = ok ] || end_with 'the program has failed'
dpkg -P libroadtrain-dev libroadtrain0
[ -z "$(find /usr -name '*libroadtrain*.so*' -o -name 'roadtrain.h' -o -name roadtrain.pc)" ] || end_with 'of the library something is left'

# A new version, under load that is checked byte for byte.
roadtrain bench -a 127.0.0.1 -n $nqn --rw randrw --bs 4k --size 64MiB --depth 16 --verify --seconds 6 --json \
    >/tmp/bench.json 2>/tmp/bench.log &
load=$!
sleep 1.5
dpkg -i /tmp/debs/second/roadtrain_*.deb
! grep 'goes on with the old version' /tmp/dpkg.out || end_with 'not upgraded'
wait $load || end_with 'the load has failed'
[ "$(jq .errors /tmp/bench.json)" = 0 ] || end_with "$(cat /tmp/bench.json)"
for n in $(seq 100); do ! kill -0 $first 2>/dev/null || { sleep 0.1; continue; }; break; done
now=$(pgrep -u roadtrain -x roadtrain) || end_with 'nobody serves'
[ "$now" != $first ] || end_with 'the old process serves'
! readlink /proc/"$now"/exe | grep deleted || end_with 'the old program serves'
roadtrain discover -a 127.0.0.1 >/dev/null || end_with 'it does not answer'
# What was made is there, at the same socket; and what a reload cannot change is named.
roadtrain ctl rpc nvmf_get_subsystems "{\"nqn\": \"$more\"}" | jq -e '.[0].namespaces[0].bdev_name == "more"' >/dev/null ||
    end_with 'what was made is gone'
roadtrain list -a 127.0.0.1 -s 4421 -n $more >/tmp/list.log || end_with 'hosts do not see what was made'
sed -i 's|^state = .*|state = "/var/lib/roadtrain/other.toml"|' /etc/roadtrain/serve.toml
kill -HUP "$now"
for n in $(seq 50); do ! grep -q 'restart or a takeover: state$' /tmp/serve.log || break; sleep 0.1; done
grep -q 'restart or a takeover: state$' /tmp/serve.log || end_with 'the reload does not say what is left'
! as_service roadtrain ctl upgrade >/tmp/upgrade.log 2>&1 || end_with 'a takeover forgets what was made'
grep -q 'what JSON-RPC requests have made is in /var/lib/roadtrain/state.toml' /tmp/serve.log || end_with 'no reason'
grep -q '^# ours' /etc/roadtrain/serve.toml || end_with 'the configuration has been overwritten'

kill "$now"
while kill -0 "$now" 2>/dev/null; do sleep 0.1; done
dpkg -r roadtrain
[ -e /etc/roadtrain/serve.toml ] && [ ! -e /usr/bin/roadtrain ] || end_with 'removed too little or too much'
dpkg -P roadtrain
[ ! -e /etc/roadtrain ] || end_with '/etc/roadtrain is left'
[ -e /var/lib/roadtrain/disk.img ] || end_with 'the disk was removed'
rm -r /var/lib/roadtrain/disk.img* /var/lib/roadtrain/images /var/lib/roadtrain/state.toml
INSIDE
}

# packages FOLDER [VERSION]: from the program that is tested
packages() {
    VERSION=${2-} ROADTRAIN=$ROADTRAIN LIBROADTRAIN=$LIBROADTRAIN "$top/scripts/deb.sh" "$1" >deb.log 2>&1 || { cat deb.log; fail 'no packages'; }
}

thorough+=(packages_install_upgrade_under_load_and_leave packages_are_as_debian_has_them)
test_packages_install_upgrade_under_load_and_leave() {
    [ "$(id -u)" = 0 ] || skip 'needs root'
    mkdir machine debs
    packages "$work/debs/first"
    packages "$work/debs/second" 99.0-1
    cp "$top/tests/capi/program.c" debs
    inside >inside.sh
    unshare --mount --net true 2>/dev/null || skip 'no namespaces here'
    mkdir -p try && unshare --mount "$BASH" -c 'mount -t tmpfs x try && cd try && mkdir a b c &&
        mount -t overlay x -o lowerdir=/,upperdir=a,workdir=b c' 2>/dev/null || skip 'no overlay file systems here'
    in_machine /bin/bash /tmp/inside.sh
    # The user stays, as Debian's rules say, and so does what dpkg and the logs remember.
    ! grep -i roadtrain left | grep -vE '^var/(lib/dpkg|log|cache)/|^etc/' || fail 'something is left'
    ! grep -E '^etc/' left | grep -vE '^etc/\.?(passwd|group|shadow|gshadow|subuid|subgid|pwd)(-|\.lock)?$' ||
        fail 'something is left in /etc'
}

test_packages_are_as_debian_has_them() {
    command -v lintian >/dev/null || skip 'no lintian: scripts/setup.sh deb'
    packages "$work/debs"
    lintian --fail-on error,warning debs/*.deb || fail 'lintian'
    # A second build results in the same bytes.
    packages "$work/again"
    local file
    for file in debs/*.deb; do cmp "$file" "again/${file##*/}" || fail 'not reproducible'; done
}
