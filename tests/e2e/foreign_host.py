"""A small NVMe/TCP host that does what other hosts do and ours does not.

foreign_host.py ADDRESS PORT SUBNQN HOSTNQN: each queue has a HOSTID of its own; before the shutdown the host ends its
Asynchronous Event Requests by itself and uses their identifiers again.
"""

import os
import socket
import struct
import sys

CAPSULE_CMD, CAPSULE_RESP, C2H_DATA, ICREQ, ICRESP = 4, 5, 7, 0, 1
FABRICS, PROPERTY_SET, CONNECT, PROPERTY_GET = 0x7F, 0, 1, 4
READ, IDENTIFY, ASYNC_EVENT_REQUEST = 2, 6, 12
CC, CSTS = 0x14, 0x1C
ENABLE, SHUT_DOWN = 0x460001, 0x464001


def sqe(opcode, cid, nsid=0, sgl=bytes(16), dwords=b""):
    """A submission queue entry; `dwords` are bytes 40 and later."""
    return struct.pack("<BBHI16x16s", opcode, 0x40, cid, nsid, sgl) + dwords.ljust(24, b"\0")


class Queue:
    """A connection, and its queue."""

    def __init__(self, address, port, names, qid, cntlid=0xFFFF):
        self.socket = socket.create_connection((address, port), timeout=60)
        self.socket.sendall(struct.pack("<BBBBIHBBI", ICREQ, 0, 128, 0, 128, 0, 0, 0, 0).ljust(128, b"\0"))
        assert self.receive()[0] == ICRESP
        data = (os.urandom(16) + struct.pack("<H", cntlid)).ljust(256, b"\0")
        data += b"".join(name.encode().ljust(256, b"\0") for name in names) + bytes(256)
        dwords = struct.pack("<HHHBxI", 0, qid, 31, 0, 10_000 if qid == 0 else 0)
        sgl = struct.pack("<QI3xB", 0, 1024, 1)
        self.cntlid = self.command(sqe(FABRICS, 1, CONNECT, sgl, dwords), data) & 0xFFFF

    def receive(self):
        """The next PDU: its type and itself."""
        pdu = self.exactly(8)
        pdu += self.exactly(struct.unpack_from("<I", pdu, 4)[0] - 8)
        return pdu[0], pdu

    def exactly(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            assert more, "the target has closed the connection"
            data += more
        return data

    def send(self, entry, data=b""):
        plen = 72 + len(data)
        self.socket.sendall(struct.pack("<BBBBI", CAPSULE_CMD, 0, 72, 72 if data else 0, plen) + entry + data)

    def answer(self, entry, data=b""):
        """The status and DW0 of a command, and the data that came with it."""
        self.send(entry, data)
        came = b""
        while True:
            kind, pdu = self.receive()
            if kind == C2H_DATA:
                came += pdu[pdu[3] :]
                if pdu[1] & 8:  # SUCCESS
                    return 0, 0, came
                continue
            assert kind == CAPSULE_RESP, f"PDU {kind}: {pdu.hex()}"
            dw0, cid, status = struct.unpack_from("<I8xHH", pdu, 8)
            assert cid == struct.unpack_from("<H", entry, 2)[0], "a completion of another command"
            return status >> 1, dw0, came

    def command(self, entry, data=b""):
        status, dw0, _ = self.answer(entry, data)
        assert status == 0, f"status {status:#x}"
        return dw0

    def get(self, cid, register):
        return self.command(sqe(FABRICS, cid, PROPERTY_GET, dwords=struct.pack("<II", 0, register)))

    def set(self, cid, register, value):
        self.command(sqe(FABRICS, cid, PROPERTY_SET, dwords=struct.pack("<IIQ", 0, register, value)))


def main():
    address, port, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:5]
    admin = Queue(address, port, names, 0)
    admin.set(2, CC, ENABLE)
    while not admin.get(2, CSTS) & 1:
        pass
    page = struct.pack("<QI3xB", 0, 4096, 0x5A)
    for csi in (1, 2):  # are there zones, or keys and values?
        status, _, _ = admin.answer(sqe(IDENTIFY, 2, 0, page, struct.pack("<II", 6, csi << 24)))
        assert status != 0, "another command set than NVM"
    for cid in (3, 4, 5, 6):
        admin.send(sqe(ASYNC_EVENT_REQUEST, cid))
    io = Queue(address, port, names, 1, admin.cntlid)
    status, _, block = io.answer(sqe(READ, 2, 1, struct.pack("<QI3xB", 0, 512, 0x5A)))
    assert status == 0 and len(block) == 512
    io.socket.close()
    admin.get(3, CC)
    admin.set(4, CC, SHUT_DOWN)
    while admin.get(3, CSTS) >> 2 & 3 != 2:
        pass
    print("shut down")


main()
