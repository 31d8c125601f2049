# shellcheck shell=bash disable=SC1091
# The commands of docs/guide/ceph.md, and `make demo-ceph`.
. "$top/tests/lib/ceph.sh"
in_network=()

thorough+=(ceph_guide ceph_demo ceph_demo_stops)

# Mounts and loop devices of a test that has failed.
guide_gone() {
    local place device backing
    fsfreeze -u "$work/mnt/data" 2>/dev/null || true
    for place in before data; do
        ! mountpoint -q "$work/mnt/$place" || umount -l "$work/mnt/$place"
    done
    roadtrain detach --all --timeout 5 >/dev/null 2>&1 || true
    losetup -n -O NAME,BACK-FILE | while read -r device backing; do
        case $backing in "$work"/*) losetup -d "$device" ;; esac
    done
    for place in rt 'then'; do umount -lf "$work/mnt/$place" 2>/dev/null || true; done
}

# around COMMAND: what a reader sees when he has done it
around() {
    case $1 in
    mount*/mnt/data)
        cp -r "$top/docs" "$work/mnt/data"
        echo old >"$work/mnt/data/version"
        ;;
    'fsfreeze -u'*) echo new >"$work/mnt/data/version" ;;
    mount*/mnt/before)
        [ "$(cat "$work/mnt/before/version")" = old ] || fail 'the snapshot is not of then'
        diff -r "$top/docs" "$work/mnt/before/docs"
        ! touch "$work/mnt/before/none" 2>/dev/null || fail 'a snapshot was written'
        ;;
    'rbd resize'*)
        eventually 60 loop_has $((12 << 30))
        ;;
    resize2fs*)
        [ "$(df --output=size -BG "$work/mnt/data" | tail -n 1 | tr -d ' G')" -ge 11 ] || fail 'the file system is as before'
        [ "$(cat "$work/mnt/data/version")" = new ]
        diff -r "$top/docs" "$work/mnt/data/docs"
        ;;
    esac
}

# loop_has BYTES: the first loop device has that size
loop_has() { [ "$(blockdev --getsize64 "${loops[0]}")" = "$1" ]; }

# resized COMMAND: as the page says; without CAP_SYS_RESOURCE, which ext4 requires, while it is not mounted
resized() {
    (($((16#$(sed -n 's/^CapEff:\s*//p' /proc/self/status))) >> 24 & 1)) || {
        umount "$work/mnt/data"
        e2fsck -fp "${loops[0]}"
        $1
        mount "${loops[0]}" "$work/mnt/data"
        return
    }
    $1
}

# All commands of the page, in turn, but for those of Linux's own driver, which tests/vm has.
test_ceph_guide() {
    [ -c /dev/fuse ] && [ -c /dev/loop-control ] || skip 'no FUSE or no loop devices'
    need_own_network
    ceph_lab
    guide_files "$ceph"
    trap guide_gone EXIT
    local command count=0 loops=() gateways=()
    guide_commands | sed "/^# With/,/^# Or/d; s|/mnt/|$work/mnt/|g; s|/dev/loop\\([01]\\)|LOOP\\1|g" >commands
    while read -r -u 5 command; do
        command=${command//LOOP0/${loops[0]-}} command=${command//LOOP1/${loops[1]-}}
        echo "$ $command"
        case $command in
        'roadtrain serve '*) guide_serves "$command" ;;
        'roadtrain attach '*)
            bash -c "$command" >attach.log
            loops+=("$(grep -o '/dev/loop[0-9]*' attach.log)")
            ;;
        'resize2fs '*) resized "$command" ;;
        *) bash -c "$command" ;;
        esac
        around "$command"
        count=$((count + 1))
    done 5<commands
    [ $count -ge 21 ] && [ ${#loops[@]} = 2 ] || fail "$count commands"
    guide_gateways_end
}

# demo: starts the script of `make demo-ceph`, in a folder and a group of processes of its own; leaves it in $demo
demo() {
    [ "$(id -u)" = 0 ] || skip 'the file system needs root'
    [ -c /dev/fuse ] && [ -c /dev/loop-control ] || skip 'no FUSE or no loop devices'
    need_ceph
    mkdir tmp
    background demo.log env --default-signal=INT TMPDIR="$work/tmp" PORT="$(free_port)" ROADTRAIN="$ROADTRAIN" \
        setsid "$top/scripts/demo-ceph.sh"
    demo=$pid
}

# Nothing is left of it: files, mounts, loop devices, processes.
demo_left_nothing() {
    [ -z "$(ls tmp)" ] || fail "$(ls -R tmp | head)"
    ! grep -F "$work/tmp" /proc/mounts || fail 'a mount'
    ! losetup -n -O BACK-FILE | grep -F "$work/tmp" || fail 'a loop device'
    ! grep -lF "$work/tmp" /proc/[0-9]*/cmdline 2>/dev/null || fail 'a process'
}

test_ceph_demo() {
    demo
    ended "$demo" 300
    wait "$demo" || fail "status $?"
    grep -q '^.*Done: the data came back unchanged' demo.log
    demo_left_nothing
}

# Ctrl-C, which all its processes get, while the cluster starts, and while there are mounts.
test_ceph_demo_stops() {
    local moment rc
    for moment in 'cluster.sh start' 'fsfreeze -f'; do
        rm -rf tmp
        demo
        until_line demo.log "$moment" "$demo" 300
        kill -INT -- "-$demo"
        ended "$demo" 300
        rc=0
        wait "$demo" || rc=$?
        [ $rc = 130 ] || fail "status $rc"
        demo_left_nothing
    done
}
