# shellcheck shell=bash
# Sockets for the monitors of virtual machines. What machines do with their disks: tests/vm/run-vhost.sh.

# attach_sockets NAME: all namespaces in the folder NAME/
attach_sockets() {
    background "$1.log" "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --as "vhost-user:$1/"
    attached=$pid
    until_line "$1.log" '^ready' "$attached"
}

test_vhost_user_has_a_socket_for_each_namespace() {
    serve --namespace mem:16MiB --namespace mem:32MiB
    mkdir disks
    attach_sockets disks
    grep -q "^ready $PWD/disks/nvme0n1.sock $PWD/disks/nvme0n2.sock $nqn" disks.log
    [ -S disks/nvme0n1.sock ] && [ -S disks/nvme0n2.sock ]
    "$ROADTRAIN" status --json | jq -e '[.. | .names? // empty | .[]] | length == 2' >/dev/null
    # No other process gets the same sockets, or removes them.
    local rc=0
    "$ROADTRAIN" attach -a 127.0.0.1 -s "$port" -n "$nqn" --as "vhost-user:$PWD/disks/" 2>second.log || rc=$?
    [ $rc = 1 ] && grep -q 'nvme0n1.sock' second.log && [ -S disks/nvme0n1.sock ]
    "$ROADTRAIN" detach "$PWD/disks/nvme0n2.sock"
    ended "$attached" 10
    [ -z "$(ls disks)" ]
}

test_vhost_user_is_tidied_up_after_a_crash() {
    serve --namespace mem:16MiB
    mkdir disks
    attach_sockets disks
    kill -KILL "$attached"
    ended "$attached" 60
    [ -S disks/nvme0n1.sock ]
    # The next one takes the place; what that one leaves, detach removes.
    attach_sockets disks
    kill -KILL "$attached"
    ended "$attached" 60
    "$ROADTRAIN" detach --all
    [ -z "$(ls disks)" ]
}

test_vhost_user_refuses_what_is_not_there() {
    serve --namespace mem:16MiB
    local rc=0
    "$ROADTRAIN" attach -a 127.0.0.1 -s "$port" -n "$nqn" --nsid 2 --as "vhost-user:$PWD/disk.sock" 2>log || rc=$?
    [ $rc = 1 ] && grep -q -- '--nsid' log && [ ! -e disk.sock ]
    rc=0
    "$ROADTRAIN" attach -a 127.0.0.1 -s "$port" -n "$nqn" --as "vhost-user:$PWD/nowhere/" 2>log || rc=$?
    [ $rc = 1 ] && grep -q 'the directory must exist' log
}
