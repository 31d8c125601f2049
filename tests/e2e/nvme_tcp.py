"""A host that speaks NVMe/TCP byte by byte, for tests of hostile behaviour."""

import socket
import struct

CONNECT, AUTH_SEND, AUTH_RECEIVE, PROPERTY_SET, PROPERTY_GET = 0x01, 0x05, 0x06, 0x00, 0x04
DYNAMIC = 0xFFFF
ADMIN_HOSTID = bytes(range(16))


class Host:
    """One connection: a queue, once it is connected."""

    def __init__(self, address, timeout=20):
        self.socket = socket.create_connection(address, timeout=timeout)
        self.cid = 0
        request = struct.pack("<BBBBI", 0, 0, 128, 0, 128)
        self.socket.sendall(request + bytes(120))
        kind, _ = self.pdu()
        assert kind == 1, f"no ICResp but PDU {kind}"

    def exactly(self, count):
        raw = b""
        while len(raw) < count:
            piece = self.socket.recv(count - len(raw))
            if not piece:
                raise ConnectionResetError("the target has closed the connection")
            raw += piece
        return raw

    def pdu(self):
        header = self.exactly(8)
        kind, _, _, _, length = struct.unpack("<BBBBI", header)
        return kind, self.exactly(length - 8)

    def command(self, sqe, data=b""):
        """Status and result of a command; the data that it returns is in `data`."""
        self.cid = (self.cid + 1) % 1000
        sqe = bytearray(sqe)
        struct.pack_into("<H", sqe, 2, self.cid)
        offset = 72 if data else 0
        header = struct.pack("<BBBBI", 4, 0, 72, offset, 72 + len(data))
        self.socket.sendall(header + bytes(sqe) + data)
        self.data = b""
        while True:
            kind, body = self.pdu()
            if kind == 5:
                result, _, _, cid, status = struct.unpack("<QHHHH", body[:16])
                assert cid == self.cid, (cid, self.cid)
                return status >> 1, result
            assert kind == 7, f"PDU {kind}"
            self.data += body[16:]

    def fabrics(self, kind, fields=b"", data=b""):
        sqe = bytearray(64)
        sqe[0], sqe[1], sqe[4] = 0x7F, 0x40, kind
        if data:
            struct.pack_into("<QI", sqe, 24, 0, len(data))
            sqe[39] = 0x01  # in the capsule
        sqe[40 : 40 + len(fields)] = fields
        return self.command(sqe, data)

    def connect(self, nqn, host, qid=0, cntlid=DYNAMIC, hostid=ADMIN_HOSTID, kato_ms=0):
        fields = struct.pack("<HHHBBI", 0, qid, 31, 0, 0, kato_ms)
        data = bytearray(1024)
        data[0:16] = hostid
        struct.pack_into("<H", data, 16, cntlid)
        for start, name in ((256, nqn), (512, host)):
            raw = name.encode() if isinstance(name, str) else name
            data[start : start + len(raw)] = raw
        return self.fabrics(CONNECT, fields, bytes(data))

    def enable(self):
        """Enables the controller and waits until it is ready."""
        status, _ = self.fabrics(PROPERTY_SET, struct.pack("<BBBBIQ", 0, 0, 0, 0, 0x14, 0x00460001))
        assert status == 0, hex(status)
        while self.fabrics(PROPERTY_GET, struct.pack("<BBBBI", 0, 0, 0, 0, 0x1C))[1] & 1 == 0:
            pass

    def is_closed(self):
        """Whether the target closes the connection, now or soon."""
        try:
            return self.socket.recv(1) == b""
        except (ConnectionResetError, BrokenPipeError):
            return True

    def close(self):
        self.socket.close()
