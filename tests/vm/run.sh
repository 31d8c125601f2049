#!/bin/bash
# Against the real Linux kernel in virtual machines: its nvme-tcp connects to our target, and our host to its
# nvmet-tcp. run.sh [NAME,...], or run.sh --list [--thorough]; ROADTRAIN=path of the program (built if not given).
# THOROUGH=1 runs those as well that `make test` leaves out.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR
. "$here/../lib/harness.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/guests.sh"
for file in "$here"/run-*.sh; do
    # shellcheck source=/dev/null
    . "$file"
done

# guide_block PAGE WORDS: the code block ```WORDS of a page of the guide
guide_block() {
    awk -v words="$2" '/^```/ {inside = !inside; here = inside && substr($0, 4) == words; next} here' "$top/docs/guide/$1" |
        grep . || fail "$1 has no block $2"
}

# share_program: our program without symbols and the libraries that it loads, for a guest's /share
share_program() {
    mkdir -p share/lib
    strip -o share/roadtrain "$ROADTRAIN"
    # shellcheck disable=SC2046
    cp -L $(ldd "$ROADTRAIN" | grep -o '/[^ ]*') share/lib
}

# share_exercise: the same of the program that checks disks; it loads what every guest has
share_exercise() { strip -o share/exercise "$EXERCISE"; }

if [ "${1-}" = --list ]; then
    run_tests "$@"
    exit
fi
select_tests "${1-}"
mapfile -t groups < <(for name in "${names[@]}"; do echo "${group_of[$name]-$name}"; done | sort -u)

# Programs and guests are made before the network is left behind.
if [ -z "${HARNESS_CHILD-}${RT_VM_NETWORK-}" ]; then
    build_roadtrain
    "$here/vm.sh" prepare || exit 1
    RT_VM_BOOTS=$(mktemp)
    export RT_VM_BOOTS RT_VM_MISSING=''
    trap 'rm -f "$RT_VM_BOOTS"' EXIT
    for group in "${groups[@]}"; do
        case " ${group_of[*]} " in
        *" $group "*) "$here/vm.sh" prepare -k "$group" || RT_VM_MISSING+=" $group" ;;
        esac
    done
fi
rc=0
if [ ${#groups[@]} -gt 1 ]; then
    at_once=$(nproc)
    run_at_once "${names[@]}" || rc=$?
elif [ -z "${RT_VM_NETWORK-}" ]; then
    network=(env RT_VM_NETWORK=user)
    ! "$here/vm.sh" netns true 2>/dev/null || network=("$here/vm.sh" netns env RT_VM_NETWORK=taps)
    "${network[@]}" "$BASH" "$0" "$@" || rc=$?
else
    set_network
    trap end_guest EXIT
    run_tests "$@" # with || behind it no failing command would end a test
    rc=$?
fi
[ -n "${HARNESS_CHILD-}${RT_VM_NETWORK-}" ] || echo "$(wc -l <"$RT_VM_BOOTS") guests booted"
exit $rc
