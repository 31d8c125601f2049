# shellcheck shell=bash
# Two processes and one store: the second is refused, with a message that names the owner.

# second OUTCOME NAMESPACE: another process with that is refused (with a text), or serves
second() {
    local rc=0 at
    at=$(free_port)
    if [ "$1" = serves ]; then
        background second.log env ROADTRAIN_RUNTIME_DIR="$work/second" "$ROADTRAIN" serve -a 127.0.0.1 -s "$at" -n "$nqn" \
            --namespace "$2"
        until_line second.log '^ready' "$pid"
        kill -TERM "$pid"
        ended "$pid" 60
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
    ended "$target" 60
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
    ended "$target" 60
    port=
    serve --namespace "file:$work/backing.img"
    second "through $work/backing.img" "block:$loop"
    second serves mem:1MiB
    kill -TERM "$target"
    ended "$target" 60
    port=
    serve --namespace "block:$loop,ro"
    second serves "block:$loop,ro"
    second "by process $target \(roadtrain" "block:$loop"
    end_all "$target"
}

# What docs/guide/serve.md says of devices that another engine keeps, with a loop device in their place: the second
# machine's target has the same identity, and a host with both addresses goes on with it, old data and new.
test_second_machine_serves_a_device() {
    local first second backing options=(--serial D1) identity=6b1a5e1c-4c52-4a0e-9d0e-3a4f5b6c7d8e
    truncate -s 16M backing.img
    loop=$(losetup --find --show backing.img 2>losetup.log) || skip "no loop device: $(cat losetup.log)"
    trap 'losetup -d "$loop"' EXIT
    serve --serial D1 --cntlid-range 1-9999 --namespace "block:$loop,uuid=$identity"
    first=$port
    second=$(free_port)
    attach -a "127.0.0.1:$second" --reconnect-delay 1
    qemu-io -f raw -c 'write -P 5 0 4M' -c 'write -f -P 6 4M 1M' -c flush "$uri" >io.log
    kill -KILL "$target"
    ended "$target" 60
    # The other machine's device has the same blocks, and another name and place.
    losetup -d "$loop"
    mv backing.img other.img
    loop=$(losetup --find --show other.img)
    port=$second
    serve --serial D1 --cntlid-range 10000-19999 --namespace "block:$loop,uuid=$identity"
    timeout 60 qemu-io -f raw -c 'read -P 5 0 4M' -c 'read -P 6 4M 1M' -c 'write -P 7 0 1M' -c flush \
        -c 'read -P 7 0 1M' "$uri" >io.log
    ! grep 'verification failed' io.log || fail 'other data'
    [ "$first" != "$port" ]
    # Another disk is not used.
    end_all "$target"
    serve --serial D1 --cntlid-range 1-9999 --namespace "block:$loop,uuid=00000000-4c52-4a0e-9d0e-3a4f5b6c7d8e"
    background other.log qemu-io -f raw -c 'write -P 8 0 1M' "$uri"
    until_line attach.log 'another one has its NSID' "$attached"
    end_all "$attached" "$target"
    [ "$(od -An -N 16 -tx1 other.img | tr -d ' \n')" = 07070707070707070707070707070707 ] || fail 'another disk was written'
}
