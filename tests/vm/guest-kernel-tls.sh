# shellcheck shell=bash
# Runs in the guest: target and host of ours over the loopback, whose TLS records the kernel seals and opens.
# /share has our program and the libraries that it loads, and 256.tls and 384.tls, which are keys.
set -eu
modprobe -a tls
nqn=nqn.2026-11.test:records
cp -r /share/roadtrain /share/lib /tmp
roadtrain=(/tmp/lib/ld-linux-x86-64.so.2 --library-path /tmp/lib /tmp/roadtrain)
fail() { echo "FAILED: $*"; cat /tmp/*.log; exit 1; }
# Since this script has begun; the guest may have used TLS before.
cp /proc/net/tls_stat /tmp/before
count() { awk -v name="$1" '$1 == name {sum = $2 - sum} END {print sum}' /tmp/before /proc/net/tls_stat; }

for suite in 256 384; do
    : >/tmp/target.log # now: nobody may read what the one before said
    "${roadtrain[@]}" serve -v -a 127.0.0.1 -s 4420 -n $nqn --namespace mem:64MiB \
        --tls required --tls-key nqn.2026-11.test:$suite=/share/$suite.tls >/tmp/target.log 2>&1 &
    target=$!
    until grep -q ^ready /tmp/target.log; do kill -0 $target || fail 'no target'; sleep 0.1; done
    for load in '--rw randrw --bs 4k --depth 8' '--rw randrw --bs 256k --depth 4'; do
        # shellcheck disable=SC2086
        "${roadtrain[@]}" bench -a 127.0.0.1 -s 4420 -n $nqn -q nqn.2026-11.test:$suite --tls --tls-key /share/$suite.tls \
            $load --seconds 0.5 --verify >/tmp/bench.log 2>&1 || fail "$suite $load"
    done
    grep -q 'records="kernel"' /tmp/target.log || fail 'the kernel does not have the keys'
    kill $target
    wait $target || fail 'the target'
done
# A connection has two ends here, and two directions.
for direction in TlsTxSw TlsRxSw; do
    [ "$(count $direction)" -ge 16 ] || fail "$(cat /proc/net/tls_stat)"
done
[ "$(count TlsDecryptError)" = 0 ] || fail "$(cat /proc/net/tls_stat)"
