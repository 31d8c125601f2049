"""Management of namespaces by commands of a host, byte by byte.

    namespace_management.py PORT NQN ADMINISTRATOR OTHER

Prints `deleted` and `refused` after the steps that the caller checks.
"""

import struct
import sys

from nvme_tcp import Host

IDENTIFY, MANAGEMENT, ATTACHMENT = 0x06, 0x0D, 0x15
CREATE, DELETE = 0, 1
ATTACH, DETACH = 0, 1
ALL = 0xFFFFFFFF
INVALID_OPCODE, INVALID_FIELD = 0x4001, 0x4002
INSUFFICIENT_CAPACITY, ALREADY_ATTACHED, NOT_ATTACHED = 0x4115, 0x4118, 0x411A


def identify(host, cns, nsid=0, cntid=0):
    """Status and page."""
    sqe = bytearray(64)
    sqe[0], sqe[1] = IDENTIFY, 0x40
    struct.pack_into("<I", sqe, 4, nsid)
    struct.pack_into("<QIBBBB", sqe, 24, 0, 4096, 0, 0, 0, 0x5A)
    struct.pack_into("<I", sqe, 40, cns | cntid << 16)
    status, _ = host.command(sqe)
    return status, host.data


def change(host, opcode, sel, nsid, data=b""):
    """Status and result."""
    sqe = bytearray(64)
    sqe[0], sqe[1] = opcode, 0x40
    struct.pack_into("<I", sqe, 4, nsid)
    struct.pack_into("<QIBBBB", sqe, 24, 0, len(data), 0, 0, 0, 0x01 if data else 0x5A)
    struct.pack_into("<I", sqe, 40, sel)
    return host.command(sqe, data)


def new(blocks):
    data = bytearray(4096)
    struct.pack_into("<QQ", data, 0, blocks, blocks)
    data[30] = 1  # shared
    return bytes(data)


def controllers(*cntlids):
    return struct.pack(f"<H{len(cntlids)}H", len(cntlids), *cntlids).ljust(4096, b"\0")


def nsids(host, cns):
    status, page = identify(host, cns)
    assert status == 0, hex(status)
    return [nsid for nsid in struct.unpack("<1024I", page) if nsid]


def listed(host, cns, nsid=0):
    status, page = identify(host, cns, nsid)
    assert status == 0, hex(status)
    count = struct.unpack_from("<H", page)[0]
    return list(struct.unpack_from(f"<{count}H", page, 2))


def connect(port, nqn, name, hostid):
    host = Host(("127.0.0.1", port))
    status, result = host.connect(nqn, name, hostid=hostid)
    assert status == 0, hex(status)
    host.enable()
    host.cntlid = result & 0xFFFF
    return host


def main():
    port, nqn, administrator, other = int(sys.argv[1]), *sys.argv[2:5]
    own = connect(port, nqn, administrator, bytes([1] * 16))
    path = connect(port, nqn, administrator, bytes([1] * 16))
    stranger = connect(port, nqn, other, bytes([2] * 16))
    everyone = sorted([own.cntlid, path.cntlid, stranger.cntlid])

    def oacs(host):
        return struct.unpack_from("<H", identify(host, 0x01)[1], 256)[0]

    assert oacs(own) & 8 and not oacs(stranger) & 8
    assert change(stranger, MANAGEMENT, CREATE, 0, new(8192)) == (INVALID_OPCODE, 0)
    assert identify(stranger, 0x10)[0] == INVALID_FIELD
    assert listed(own, 0x13) == everyone
    before = nsids(own, 0x10)

    status, nsid = change(own, MANAGEMENT, CREATE, 0, new(16384))
    assert status == 0 and nsid not in before, (hex(status), nsid)
    assert nsids(own, 0x10) == sorted([*before, nsid])
    assert nsids(own, 0x02) == before, "a new namespace is not attached"
    assert struct.unpack_from("<Q", identify(own, 0x11, nsid)[1])[0] == 16384
    assert identify(own, 0x00, nsid)[1] == bytes(4096)
    assert listed(own, 0x12, nsid) == []

    assert change(own, ATTACHMENT, ATTACH, nsid, controllers(path.cntlid)) == (0, 0)
    for host in (own, path):
        assert nsids(host, 0x02) == sorted([*before, nsid]), "the paths of a host count together"
    assert nsids(stranger, 0x02) == before
    assert listed(own, 0x12, nsid) == sorted([own.cntlid, path.cntlid])
    twice = change(own, ATTACHMENT, ATTACH, nsid, controllers(*everyone))
    assert twice == (ALREADY_ATTACHED, 0), twice
    assert change(own, ATTACHMENT, ATTACH, nsid, controllers(stranger.cntlid)) == (0, 0)
    assert nsids(stranger, 0x02) == sorted([*before, nsid])
    assert change(own, ATTACHMENT, DETACH, nsid, controllers(*everyone)) == (0, 0)
    assert change(own, ATTACHMENT, DETACH, nsid, controllers(own.cntlid)) == (NOT_ATTACHED, 0)
    assert change(own, MANAGEMENT, CREATE, 0, new(1 << 40)) == (INSUFFICIENT_CAPACITY, 0)

    status, second = change(own, MANAGEMENT, CREATE, 0, new(1))
    assert status == 0 and second not in (*before, nsid), (hex(status), second)
    assert change(own, MANAGEMENT, DELETE, nsid) == (0, 0)
    assert nsids(own, 0x10) == sorted([*before, second])
    if before:
        assert change(own, MANAGEMENT, DELETE, ALL)[0] == 0x4286, "one is no volume of the store"
        assert nsids(own, 0x10) == sorted([*before, second])
    print("kept", second)


main()
