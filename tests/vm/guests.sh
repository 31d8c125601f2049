# shellcheck shell=bash
# One guest for many tests: it is booted once, and runs the scripts of one test after the other (agent.sh). After a test
# that has failed the next one gets a new guest. `group_of` names the guest's kernel for each test that uses it.

# Where the two sides reach each other. With taps the tests run in a network namespace with a bridge (vm.sh netns); in
# QEMU's user-mode network targets listen on the loopback and ports lead to the guest.
set_network() {
    case ${RT_VM_NETWORK-} in
    taps) target_address=10.0.2.2 kernel_address=10.0.2.15 kernel_ports=(4420 4421) ;;
    *) target_address=127.0.0.1 kernel_address=127.0.0.1 kernel_ports=() ;;
    esac
}

needs_taps() { [ "${RT_VM_NETWORK-}" = taps ] || skip 'needs a network namespace and /dev/net/tun'; }

# is_missing KERNEL: its guest could not be prepared
is_missing() {
    case " ${RT_VM_MISSING-} " in *" $1 "*) return 0 ;; esac
    return 1
}

# A clean guest for the test, if it uses one.
before_test() {
    local kernel=${group_of[$1]-}
    [ -n "$kernel" ] && ! is_missing "$kernel" || return 0
    if [ -n "${guest_vm-}" ]; then
        ! alive "$guest_vm" || [ -e "$guest/busy" ] || return 0
        echo "guest   ends: $(cat "$guest/busy" 2>/dev/null || tail -n 1 "$guest/console.log")"
        end_guest
    fi
    start_guest "$kernel"
}

# start_guest KERNEL: leaves its folder in $guest and the process of vm.sh in $guest_vm
start_guest() {
    local options=(-n 0) start=${EPOCHREALTIME/[.,]/}
    guest=$(mktemp -d)
    mkdir -p "$guest/share/jobs" "$guest/share/shares"
    echo 0 >"$guest/jobs"
    if [ "${RT_VM_NETWORK-}" != taps ]; then
        kernel_ports=("$(work=$guest free_port)" "$(work=$guest free_port)")
        options=(-f "${kernel_ports[0]}:4420" -f "${kernel_ports[1]}:4421")
    fi
    setpriv --pdeathsig TERM "$here/vm.sh" run -k "$1" -t 14400 -s "$guest/share" "${options[@]}" "$here/agent.sh" \
        >"$guest/console.log" 2>&1 &
    guest_vm=$!
    until [ -e "$guest/share/up" ] || ! alive "$guest_vm"; do sleep 0.1; done
    [ ! -e "$guest/share/up" ] || echo "guest   $1 ($(seconds_since "$start") s)"
}

end_guest() {
    [ -n "${guest_vm-}" ] || return 0
    kill -TERM "$guest_vm" 2>/dev/null
    wait "$guest_vm" 2>/dev/null
    [ ! -e "$guest/.ports" ] || (cd "/tmp/roadtrain-ports-$UID" && xargs rm -f) <"$guest/.ports"
    rm -rf "$guest"
    guest_vm=''
}

# share: makes the folder share, which the guest's next scripts have as /share
share() {
    local folder
    folder=$(mktemp -d -p "$guest/share/shares")
    chmod 755 "$folder"
    ln -s "$folder" share
}

# is_broken_from_outside FOLDER: the emulator ran an instruction that the guest's kernel was changing on another processor
is_broken_from_outside() {
    grep -qs 'Oops: int3' "$1/console.log" && echo 'the emulator ran a half changed instruction of the guest'
}

# guest [-e NAME=VALUE]... SCRIPT: runs it in the guest and ends with its status. $port and $nqn are known to it as PORT
# and NQN.
guest() {
    local vars=("PORT=${port-}" "NQN=${nqn-}") option OPTIND=1 OPTARG job status output limit=$((SECONDS + 2400))
    while getopts e: option; do vars+=("$OPTARG"); done
    shift $((OPTIND - 1))
    [ -n "${guest_vm-}" ] || fail 'there is no guest'
    alive "$guest_vm" || { cat "$guest/console.log"; fail 'the guest did not come up'; }
    echo 'a script did not end' >"$guest/busy"
    job=$(<"$guest/jobs")
    echo $((job + 1)) >"$guest/jobs"
    mkdir "$guest/share/new"
    cp "$1" "$guest/share/new/script"
    for option in "${vars[@]}"; do printf '%s=%q\n' "${option%%=*}" "${option#*=}"; done >"$guest/share/new/vars"
    [ ! -e share ] || basename "$(readlink share)" >"$guest/share/new/share"
    : >"$guest/share/new/output"
    mv "$guest/share/new" "$guest/share/jobs/$job"
    job=$guest/share/jobs/$job
    exec {output}<"$job/output"
    until [ -e "$job/status" ]; do
        cat <&"$output"
        alive "$guest_vm" || { cp "$guest/console.log" "$work"; fail 'the guest died'; }
        [ $SECONDS -lt $limit ] || { cp "$guest/console.log" "$work"; fail 'the script did not end within 2400 s'; }
        sleep 0.1
    done
    cat <&"$output"
    exec {output}<&-
    status=$(<"$job/status")
    [ "$status" = '0 clean' ] && rm "$guest/busy" || echo "$status" >"$guest/busy"
    return "${status%% *}"
}

# until_file FILE PID [SECONDS]: waits for a file while the process lives
until_file() {
    local n
    for ((n = 0; n < ${3:-400} * 10; n++)); do
        [ ! -e "$1" ] || return 0
        alive "$2" || { cat guest.log; fail "the guest ended before $1"; }
        sleep 0.1
    done
    fail "no $1"
}

# until_gone FILE: waits until the guest has removed it
until_gone() {
    local n
    for ((n = 0; n < 1200; n++)); do
        [ -e "$1" ] || return 0
        sleep 0.1
    done
    fail "the guest does not do ${1##*/}"
}

# guest_ends PID [LOG]: waits for the script that this process follows, which must succeed
guest_ends() { wait "$1" || { cat "${2-guest.log}"; fail 'the script in the guest failed'; }; }

# kernel_target [OPTIONS of guest]: nvmet-tcp at $target_address:$port, exporting $nqn; leaves its process in $kernel
kernel_target() {
    nqn=nqn.2024-01.test:kernel target_address=$kernel_address port=${kernel_ports[0]}
    [ -e share ] || share
    # shellcheck disable=SC2016
    background kernel.log guest -e "NQN=$nqn" -e 'THEN=until [ -e /share/end ]; do sleep 0.1; done' "$@" \
        "$here/${script:-target.sh}"
    kernel=$pid
    until_line kernel.log "^READY${ready-}" "$kernel" 400
}

kernel_target_ends() {
    touch share/end
    guest_ends "$kernel" kernel.log
}
