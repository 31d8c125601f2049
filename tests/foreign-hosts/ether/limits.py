#!/usr/bin/env python3
"""Requests at the limits of the frame format and beyond: each is answered, or its lane ends with a reason.

    limits.py IF[,IF..] NQN

What is acknowledged is not sent again, so a request that a target drops without a word would never end."""
import struct, sys
from host import CARGO, DISCOVERY_NQN, M32, Controller, Failed, Host, LaneEnded, Request, sqe

INVALID_FIELD, BROKEN = 0x02, 4
MDTS = 1 << 20

def status(request):
    return request.status & 0x7FF

def too_large(c):
    """A read and a write of more than MDTS, and a log page: Invalid Field, and the lane goes on."""
    for nbytes in (MDTS + 512, 2 * MDTS, 4 * MDTS):
        r = c.start_read(0, nbytes)
        assert status(c.io.wait(r)) == INVALID_FIELD, hex(r.status)
    for nbytes in (MDTS + 512, MDTS + 4096):
        r = c.start_write(0, bytes(nbytes))
        assert status(c.io.wait(r)) == INVALID_FIELD, hex(r.status)
    nbytes = MDTS + 4096
    r = c.admin.command(sqe(2, 0, 2 | (nbytes // 4 - 1) << 16 & M32, nbytes // 4 - 1 >> 16), inlen=nbytes)
    assert status(r) == INVALID_FIELD, hex(r.status)
    c.write(0, b"w" * 4096)
    assert c.read(0, 4096) == b"w" * 4096

def send(lane, requests, records=None):
    """All records of these requests in one frame, or those given."""
    records = records or [(r, record) for r in requests for record in r.records]
    ch = lane.channels[0]
    ch.frame(CARGO, b"".join(record for _, record in records), records=records)

def many_records(c):
    """A frame of 100 Flush commands: 100 completions."""
    requests = [c.io.submit(sqe(0, 1), send=False) for _ in range(100)]
    send(c.io, requests)
    c.io.wait(*requests)
    assert all(status(r) == 0 for r in requests)

def ends(c, what, change, fits=True):
    """A write with one changed record: its lane ends with reason 4, soon."""
    r = c.io.submit(c.write_sqe(0, 2 * c.io.piece // 512 * 512), bytes(2 * c.io.piece // 512 * 512), send=False)
    records = [(r, record) for r, record in ((r, record) for record in r.records)]
    send(c.io, [r], change(records))
    try:
        c.io.wait(r, seconds=20)
    except LaneEnded as end:
        assert str(end) == f"Leave, reason {BROKEN}", f"{what}: {end}"
        return
    raise SystemExit(f"{what}: answered with {r.status:#x}")

def with_field(records, index, at, form, value):
    """The records, with a field of one of them changed, in the order: data first, then the command."""
    changed = bytearray(records[index][1])
    struct.pack_into(form, changed, at, value)
    records[index] = (records[index][0], bytes(changed))
    return records[1:] + records[:1]

def main():
    interfaces, nqn = sys.argv[1:3]
    host = Host(interfaces.split(","))
    c = Controller(host, nqn)
    c.namespace(), c.io_lane(slots=256)
    too_large(c)
    print("more than MDTS: Invalid Field")
    many_records(c)
    print("100 records of a frame: 100 completions")
    for what, change in {
        "a first record with another POSITION": lambda r: with_field(r, 1, 12, "<I", c.io.pages - 8),
        "a place outside of the damq": lambda r: with_field(r, 1, 12, "<I", c.io.pages),
        "OCTETS that do not fit": lambda r: with_field(r, 1, 20, "<I", 512),
        "an INDEX beyond PIECES": lambda r: with_field(r, 1, 16, "<H", 7),
        "a CID that is not the slot": lambda r: with_field(r, 0, 10, "<H", 99),
        "a slot beyond the queue": lambda r: with_field(r, 1, 4, "<H", 9999),
        "an unknown KIND": lambda r: with_field(r, 2, 0, "<B", 7),
    }.items():
        ends(c, what, change)
        # The lane is gone, its slot and its queue with it; another controller begins anew.
        host.lanes.remove(c.io)
        c.admin.leave()
        c = Controller(host, nqn)
        c.namespace(), c.io_lane(slots=256)
        print(what + ": the lane ends with reason 4")
    print("left:", c.close())
    print("ok")

if __name__ == "__main__":
    main()
