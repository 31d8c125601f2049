# shellcheck shell=bash
# A target that stood still executes nothing old behind what is newer.

# unread BYTES: so many lie unread in the sockets of the target on $port
unread() { ss -Htn state established sport = ":$port" | awk -v least="$1" '{ sum += $1 } END { exit !(sum >= least) }'; }

# queues_closed COUNT: the target has closed so many as their keep-alive timer had expired
queues_closed() { [ "$(grep -c 'queue closed.*reason=KeepAliveExpired' target.log)" -ge "$1" ]; }

# The target stands still with a write in its socket, for longer than two keep-alive timeouts; so does its host, which
# could write it again. Alone again, the target does not execute it, though the write before had restarted the timer.
test_shared_disk_paused_target_executes_nothing_old() {
    truncate -s 16M disk.img
    serve --namespace "file:$PWD/disk.img"
    attach --keep-alive-tmo 1
    qemu-io -f raw -c 'write -P 0x11 0 4k' "$uri" >first.log
    stopped "$target"
    background second.log qemu-io -f raw -c 'write -P 0x22 4k 4k' "$uri"
    local write=$pid since
    eventually 30 unread 4096
    stopped "$attached"
    since=$EPOCHREALTIME
    eventually 30 waited "$since" 3
    kill -CONT "$target"
    eventually 30 queues_closed 2
    cmp --bytes=4096 --ignore-initial=4096:0 disk.img /dev/zero || fail 'the target has executed an old write'
    kill -CONT "$attached"
    ended "$write" 30
    wait "$write" || { cat second.log; fail 'the write has failed'; }
    qemu-io -f raw -c 'read -P 0x22 4k 4k' "$uri" >read.log || { cat read.log; fail 'it was not written again'; }
}
