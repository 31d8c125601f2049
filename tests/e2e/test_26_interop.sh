# shellcheck shell=bash
# shellcheck disable=SC2154  # top, work and pid are the harness's
# What other hosts and targets do, and ours do not.

# SPDK ends its Asynchronous Event Requests by itself, and uses their identifiers for the shutdown. Other hosts make a
# HOSTID for each connection.
test_a_host_detaches_as_spdk_does() {
    serve --namespace mem:64MiB
    python3 "$top/tests/e2e/foreign_host.py" 127.0.0.1 "$port" "$nqn" nqn.2026-11.test:foreign >host.log
    grep -qx 'shut down' host.log
    grep -q 'names another HOSTID' target.log
    ! grep -qE 'identifier|protocol' target.log || fail "$(grep -E 'identifier|protocol' target.log)"
    ! grep -q 'not shut down' target.log
}
