"""Attacks of an unauthenticated host on a running target: one for each word."""

import resource
import socket
import sys
import time
import urllib.request

from nvme_tcp import DYNAMIC, Host

ATR = 1 << 17  # a proof is required
what, port, nqn, own = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
address = ("127.0.0.1", port)
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def claims(count, host=own, **more):
    """So many Connects that prove nothing, on connections that stay."""
    held = []
    for _ in range(count):
        one = Host(address)
        status, result = one.connect(nqn, host, **more)
        assert status == 0 and result & ATR, (hex(status), hex(result))
        held.append(one)
    return held


def until_told(line="done"):
    """Lets the test continue, which reports when these connections may end."""
    print("ready", flush=True)
    assert sys.stdin.readline().strip() == line


if what == "hold":  # N Connects that claim a host's name
    held = claims(int(sys.argv[5]))
    until_told()
elif what == "queues":  # I/O queues of whatever controllers there are
    held = [claims(1, qid=qid, cntlid=cntlid)[0] for cntlid in range(1, 9) for qid in range(1, 9)]
    until_told()
elif what == "answers":  # statuses of Connect before authentication
    answers = set()
    for name, host, qid, cntlid in [
        (nqn, own, 0, DYNAMIC),
        (nqn, "nqn.2026-11.test:stranger", 0, DYNAMIC),
        ("nqn.2026-11.test:nowhere", own, 0, DYNAMIC),
        (nqn, own, 0, 7),
        (nqn, own, 1, 7),
        (nqn, own, 1, 60000),
        ("nqn.2026-11.test:nowhere", "nqn.2026-11.test:stranger", 1, 1),
    ]:
        status, result = Host(address).connect(name, host, qid=qid, cntlid=cntlid)
        answers.add((status, result >> 16))
    assert answers == {(0, ATR >> 16)}, answers
elif what == "stays":  # a host that needs no proof, until the rules change
    plain = Host(address)
    status, result = plain.connect(nqn, own)
    assert status == 0 and not result & ATR, (hex(status), hex(result))
    plain.enable()
    until_told()
    assert plain.is_closed(), "it may go on without a proof"
elif what == "names":  # Connects of N hosts that are not let in; names that no host has
    for number in range(int(sys.argv[5])):
        one = Host(address)
        status, _ = one.connect(nqn, f"nqn.2026-11.test:made-up-{number}")
        assert status != 0
        one.close()
    for odd in [b"nqn.2026-11.test:\x1b[2J", b"nqn.2026-11.test:a\nb"]:
        status, _ = Host(address).connect(nqn, odd)
        assert status & 0x7FF == 0x182, hex(status)
elif what == "unread":  # scrapes whose replies are not read
    held = []
    for _ in range(64):
        one = socket.create_connection(address)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8)
        held.append(one)
    begun = time.monotonic()
    body = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20).read()
    assert b"roadtrain_" in body and time.monotonic() - begun < 10
else:
    sys.exit(f"no attack {what}")
