"""An NBD server that breaks the protocol in one way.

nbd_hostile.py CASE SOCKET, or nbd_hostile.py --list: prints each case with what its error has to name.
"""

import socket
import struct
import sys
import threading
import time

GREETING = b"NBDMAGICIHAVEOPT"
OPTION_REPLY, REQUEST, SIMPLE, CHUNK = 0x3E889045565A9, 0x25609513, 0x67446698, 0x668E33EF
STRUCTURED, META, GO = 8, 10, 7
ACK, INFO, CONTEXT = 1, 3, 4
SIZE = 1 << 26

CASES = {
    "handshake-magic": "magic",
    "handshake-oldstyle": "oldstyle",
    "handshake-silent": "no reply within 2 s",
    "handshake-closed": "closed the connection",
    "handshake-long": "length 4294967295",
    "handshake-option": "option",
    "handshake-endless": "64 replies at most",
    "handshake-size": "size of the export is missing",
    "handshake-blocks": "minimum 3",
    "handshake-text": "text",
    "reply-magic": "magic 0x",
    "reply-cookie": "cookie 0x",
    "reply-type": "type 0x",
    "reply-offset": "offset",
    "reply-twice": "comes twice",
    "reply-short": "data 0",
    "reply-length": "length 4294967295",
    "reply-error": "error OK",
    "reply-silent": "no reply within 1 s",
    "reply-half": "no reply within 1 s",
}


def exactly(stream, length):
    data = b""
    while len(data) < length:
        more = stream.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def option_reply(stream, option, kind, data=b"", length=None):
    length = len(data) if length is None else length
    stream.sendall(struct.pack(">QIII", OPTION_REPLY, option, kind, length) + data)


def handshake(stream, case):
    if case == "handshake-magic":
        stream.sendall(b"HTTP/1.1 400 Bad Request\r\n")
    if case == "handshake-oldstyle":
        stream.sendall(b"NBDMAGIC" + bytes.fromhex("0000420281861253") + bytes(136))
    if case == "handshake-silent":
        time.sleep(60)
    if case == "handshake-closed":
        return False
    stream.sendall(GREETING + struct.pack(">H", 3))
    exactly(stream, 4)
    while True:
        _, option, length = struct.unpack(">QII", exactly(stream, 16))
        exactly(stream, length)
        if case == "handshake-long":
            option_reply(stream, option, ACK, length=0xFFFFFFFF)
        elif case == "handshake-option":
            option_reply(stream, option + 1, ACK)
        elif option == STRUCTURED:
            option_reply(stream, option, ACK)
        elif option == META:
            name = b"\xff" if case == "handshake-text" else b"base:allocation"
            option_reply(stream, option, CONTEXT, struct.pack(">I", 1) + name)
            option_reply(stream, option, ACK)
        elif option == GO:
            while case == "handshake-endless":
                option_reply(stream, option, INFO, struct.pack(">H", 1) + b"x")
            minimum = 3 if case == "handshake-blocks" else 1
            option_reply(stream, option, INFO, struct.pack(">HIII", 3, minimum, 4096, 1 << 25))
            if case != "handshake-size":
                option_reply(stream, option, INFO, struct.pack(">HQH", 0, SIZE, 1 | 1 << 2))
            option_reply(stream, option, ACK)
            return True


def chunk(cookie, kind, payload=b"", done=1, length=None):
    length = len(payload) if length is None else length
    return struct.pack(">IHHQI", CHUNK, done, kind, cookie, length) + payload


def data(offset, length):
    return struct.pack(">Q", offset) + bytes(length)


def reply(case, cookie, offset, length):
    return {
        "reply-magic": struct.pack(">I", 0x12345678),
        "reply-cookie": chunk(cookie + 1, 0),
        "reply-type": chunk(cookie, 77),
        "reply-offset": chunk(cookie, 1, data(offset + length, length)),
        "reply-twice": chunk(cookie, 1, data(offset, length), 0) + chunk(cookie, 1, data(offset, 1)),
        "reply-short": chunk(cookie, 0),
        "reply-length": chunk(cookie, 1, length=0xFFFFFFFF),
        "reply-error": chunk(cookie, 0x8001, struct.pack(">IH", 0, 0)),
        "reply-silent": b"",
        "reply-half": chunk(cookie, 1, data(offset, length))[:-1],
    }[case]


def serve(stream, case):
    try:
        if not handshake(stream, case):
            return
        while True:
            _, _, command, cookie, offset, length = struct.unpack(">IHHQQI", exactly(stream, 28))
            if command == 1:
                exactly(stream, length)
            if command == 0:
                stream.sendall(reply(case, cookie, offset, length))
            elif command != 2:
                stream.sendall(struct.pack(">IIQ", SIMPLE, 0, cookie))
    except (EOFError, OSError):
        pass
    finally:
        stream.close()


def main():
    if sys.argv[1] == "--list":
        for case, expected in CASES.items():
            print(case, expected)
        return
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[2])
    listener.listen(8)
    while True:
        stream, _ = listener.accept()
        threading.Thread(target=serve, args=(stream, sys.argv[1]), daemon=True).start()


main()
