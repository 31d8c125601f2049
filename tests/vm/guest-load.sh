# shellcheck shell=bash
# Functions of guests that have the kernel's multipath and a loaded file system on it; they read /share/load.sh.
# /share/NAME requests a fault, /share/NAME.done reports it.

await() { # await SECONDS COMMAND...
    local n
    for n in $(seq $(($1 * 10))); do if "${@:2}"; then return 0; fi; sleep 0.1; done
    echo "never: ${*:2}"
    tail -n 100 /sys/class/nvme/*/state /sys/block/nvme*/ana_state /tmp/fio
    return 1
}
is_there() { [ -e "$1" ]; }
fault() {
    touch "/share/$1"
    await 200 is_there "/share/$1.done"
}
path() { echo /sys/class/nvme-subsystem/nvme-subsys0/nvme"$1"; } # path 0|1, as they were connected
is_state() { [ "$(cat "$(path "$1")/state")" = "$2" ]; }
is_ana() { [ "$(cat "$(path "$1")/nvme0c$1n1/ana_state")" = "$2" ]; }
written() { awk '{print $5}' "$(path "$1")/nvme0c$1n1/stat"; }
busy() { # busy PATH: the load goes over it
    local before
    alive
    before=$(written "$1")
    await 60 grows "$1" "$before"
}
grows() { [ "$(written "$1")" -gt $(($2 + 50)) ]; }
alive() { kill -0 "$load" || { cat /tmp/fio; return 1; }; }

# starts a file system and verified load on it; leaves its process in $load
load_begins() {
    mkfs.ext4 -q -F /dev/nvme0n1
    mkdir -p /mnt
    mount /dev/nvme0n1 /mnt
    fio --name=load --directory=/mnt --size=8m --rw=randwrite --bs=4k --ioengine=libaio --iodepth=8 --direct=1 \
        --verify=crc32c --verify_fatal=1 --loops=100000 --eta=never --output=/tmp/fio --trigger-file=/tmp/enough &
    load=$!
}

# it has seen no error, and the file system is whole
load_ends() {
    : >/tmp/enough
    wait $load || { cat /tmp/fio; exit 1; }
    if grep -E 'err= *[1-9]' /tmp/fio; then exit 1; fi
    umount /mnt
    e2fsck -fn /dev/nvme0n1
    nvme disconnect -n "$NQN"
    # The kernel does not retry reads ahead; a process that needs the blocks reads them (REQ_RAHEAD, bit 19).
    dmesg | grep -vE '\(READ\) flags 0x[0-9a-f]*[89a-f][0-9a-f]{4} ' >/tmp/dmesg
    ! grep -E 'I/O error|EXT4-fs error|EXT4-fs warning' /tmp/dmesg
}
