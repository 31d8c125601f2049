# shellcheck shell=bash
# Two processes and one store: who comes second is refused, and hears who has it.

# second OUTCOME NAMESPACE: another process with that is refused (with a text), or serves
second() {
    local rc=0 at
    at=$(free_port)
    if [ "$1" = serves ]; then
        background second.log env ROADTRAIN_RUNTIME_DIR="$work/second" "$ROADTRAIN" serve -a 127.0.0.1 -s "$at" -n "$nqn" \
            --namespace "$2"
        until_line second.log '^ready' "$pid"
        kill -TERM "$pid"
        ended "$pid" 5
        return
    fi
    env ROADTRAIN_RUNTIME_DIR="$work/second" timeout 20 "$ROADTRAIN" serve -a 127.0.0.1 -s "$at" -n "$nqn" \
        --namespace "$2" >second.log 2>&1 || rc=$?
    [ $rc = 1 ] || fail "$2: status $rc: $(cat second.log)"
    grep -qE "already in use .*$1" second.log || fail "$2: $(cat second.log)"
}

test_one_writer_of_a_file() {
    local disk=$work/disk.img by
    serve --namespace "file:$disk,size=16MiB"
    by="by process $target \(roadtrain"
    ln "$disk" hard.img
    ln -s "$disk" soft.img
    # Overlay file systems have other numbers in the kernel's table of locks.
    grep -q "FLOCK.*WRITE $target .*:$(stat -c %i "$disk") " /proc/locks || by=''
    for name in "$disk" hard.img soft.img; do
        second "$by" "file:$name"
        second "$by" "file:$name,ro"
    done
    stopped "$target"
    second "$by" "file:$disk"  # a process that is stopped may go on
    kill -KILL "$target"
    ended "$target" 5
    second serves "file:$disk"
    port=
    serve --namespace "file:$disk,ro"
    second serves "file:$disk,ro"
    second '' "file:$disk"
}

test_one_writer_of_a_device() {
    truncate -s 16M backing.img
    loop=$(losetup --find --show backing.img 2>losetup.log) || skip "no loop device: $(cat losetup.log)"
    trap 'losetup -d "$loop"' EXIT
    serve --namespace "block:$loop"
    second "by process $target \(roadtrain" "block:$loop"
    second "by process $target \(roadtrain" "block:$loop,ro"
    second '' "file:backing.img"
    ! mount "$loop" /mnt 2>mount.log || fail 'it was mounted'
    kill -TERM "$target"
    ended "$target" 5
    port=
    serve --namespace "file:$work/backing.img"
    second "through $work/backing.img" "block:$loop"
    second serves mem:1MiB
    kill -TERM "$target"
    ended "$target" 5
    port=
    serve --namespace "block:$loop,ro"
    second serves "block:$loop,ro"
    second "by process $target \(roadtrain" "block:$loop"
    end_all "$target"
}
