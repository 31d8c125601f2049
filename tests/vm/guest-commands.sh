# shellcheck shell=bash
# Runs in the guest: commands that no file system sends: Compare, Verify, Copy, Get LBA Status, by nvme-cli, and what
# the target reports to support of them. The kernel does not pass on fused commands.
set -eu

await() { # await SECONDS COMMAND...
    local n
    for n in $(seq $(($1 * 10))); do if "${@:2}"; then return 0; fi; sleep 0.1; done
    echo "never: ${*:2}"
    return 1
}
is_there() { [ -b "$1" ]; }
refused() { # refused TEXT COMMAND...: fails and says so
    local said
    if said=$("${@:2}" 2>&1); then
        echo "not refused: ${*:2}"
        return 1
    fi
    echo "$said" | grep -Eqi "$1" || {
        echo "${*:2}: $said"
        return 1
    }
}
says() { # says FILE NAME NUMBER...: the JSON in the file has these members
    local file=$1
    shift
    while [ $# -gt 0 ]; do
        grep -Eq "\"$1\":$2[,}]" "$file" || {
            echo "$1 is not $2: $(cat "$file")"
            return 1
        }
        shift 2
    done
}
blocks() { dd if=$a bs=512 skip="$1" count="$2" iflag=direct 2>/dev/null; }
same() { # same FILE FIRST BLOCKS: these blocks have the file's bytes
    blocks "$2" "$3" | cmp - "$1"
}

modprobe nvme-tcp
nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" -i 1
await 20 is_there /dev/nvme0n1
a=/dev/nvme0n1

# Compare, Write Uncorrectable, Dataset Management, Write Zeroes, Save, reservations, Verify, Copy. What is atomic is one
# block; a Copy has 128 ranges of 4 MiB at most, 16 MiB together.
nvme id-ctrl $a -o json | tr -d ' \n\t' >controller
says controller oacs $((0x200)) oncs $((0x1bf)) fuses 1 awun 0 awupf 0 acwu 0 ocfs 1
nvme id-ns $a -o json | tr -d ' \n\t' >namespace
says namespace nsfeat $((0x10)) nawun 0 nawupf 0 nacwu 0 mssrl 8192 mcl 32768 msrc 127

dd if=/dev/urandom of=data bs=512 count=16 2>/dev/null
dd if=data of=$a bs=512 count=16 oflag=direct 2>/dev/null

nvme compare $a --start-block=0 --block-count=15 --data-size=8192 --data=data
dd if=data of=other bs=512 skip=1 count=8 2>/dev/null
refused 0x4285 nvme compare $a --start-block=0 --block-count=7 --data-size=4096 --data=other
nvme compare $a --start-block=1 --block-count=7 --data-size=4096 --data=other

nvme verify $a --start-block=0 --block-count=15
nvme io-passthru $a --opcode=0x0c --namespace-id=1 --cdw10=0 --cdw12=15
refused 0x4080 nvme verify $a --start-block=$((64 * 2048)) --block-count=0

# Two ranges, side by side behind each other and in the other order.
nvme copy $a --sdlba=1000 --slbs=8,0 --blocks=7,7 --format=0
dd if=data of=turned bs=512 skip=8 count=8 2>/dev/null
dd if=data of=turned bs=512 seek=8 count=8 2>/dev/null
same turned 1000 16
nvme copy $a --sdlba=1000 --slbs=0 --blocks=15 --format=0 --force-unit-access
same data 1000 16
refused 0x4187 nvme copy $a --sdlba=8 --slbs=0 --blocks=15 --format=0
refused 0x4183 nvme copy $a --sdlba=20000 --slbs=0 --blocks=8192 --format=0
refused 0x4080 nvme copy $a --sdlba=$((64 * 2048 - 1)) --slbs=0 --blocks=15 --format=0
same data 0 16

# What is allocated: the first blocks, and not the last ones. Looking for what cannot be read is not offered. (nvme-cli's
# own get-lba-status has no room for the list up to 2.3.)
status() { # status SLBA BLOCKS ACTION
    nvme admin-passthru $a --opcode=0x86 --namespace-id=1 --cdw10="$1" --cdw12=1023 --cdw13=$(($3 << 24 | $2)) \
        --data-len=4096 --read --raw-binary
}
begins() { # begins BYTES...: standard input does
    printf "$(printf '\\x%s' "$@")" >expected
    dd bs=$# count=1 2>/dev/null | cmp - expected
}
nothing='00 00 00 00'
# shellcheck disable=SC2086
status 0 16 2 | begins 01 00 00 00 02 00 00 00 $nothing $nothing 0f 00 00 00 $nothing
# shellcheck disable=SC2086
status 65536 65535 2 | begins $nothing 02 00 00 00
refused 0x4080 status $((64 * 2048)) 1 2
refused 0x4002 status 0 1 16

# Marked blocks fail every command that reads them, and the kernel's own reads, until they are written.
nvme write-uncor $a --start-block=4 --block-count=3
refused 0x4281 nvme read $a --start-block=4 --block-count=0 --data-size=512 --data=/dev/null
refused 0x4281 nvme verify $a --start-block=0 --block-count=15
refused 0x4281 nvme compare $a --start-block=0 --block-count=15 --data-size=8192 --data=data
refused 0x4281 nvme copy $a --sdlba=2000 --slbs=0 --blocks=15 --format=0
nvme write-uncor $a --start-block=65540 --block-count=0 # no hole any more: who copies it is to hear of it
# shellcheck disable=SC2086
status 65536 65535 2 | begins 01 00 00 00 02 00 00 00 00 00 01 00 $nothing fe ff 00 00
refused 'no data available' dd if=$a of=/dev/null bs=512 count=1 skip=7 iflag=direct
refused 0x4080 nvme write-uncor $a --start-block=$((64 * 2048)) --block-count=0
dd if=data of=$a bs=512 count=1 skip=4 seek=4 oflag=direct 2>/dev/null
nvme verify $a --start-block=4 --block-count=0
refused 0x4281 nvme verify $a --start-block=5 --block-count=0
dd if=data of=$a bs=512 count=16 oflag=direct 2>/dev/null
same data 0 16

# Half of a fused operation does not leave the kernel.
refused 'invalid argument' nvme io-passthru $a --opcode=0x05 --flags=1 --namespace-id=1 --data-len=512 --write \
    --input-file=data
nvme disconnect -n "$NQN"
