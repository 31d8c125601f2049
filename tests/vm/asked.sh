# shellcheck shell=bash
# For scripts that do beside a guest what it asks for; its process is in $vm.

# asked NAME COMMAND...: does it when the guest asks for NAME
asked() {
    for ((n = 0; n < 2400; n++)); do
        [ ! -e "share/$1" ] || break
        kill -0 "${vm:?}" || { echo "the guest ended before it asked for $1"; exit 1; }
        sleep 0.1
    done
    [ -e "share/$1" ] || { echo "the guest did not ask for $1 within 240 s"; exit 1; }
    "${@:2}"
    touch "share/$1.done"
}
