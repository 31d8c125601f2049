"""A proxy before a target: on each connection but the first, one answer with data becomes a success without any.

short_read.py PORT TARGET_PORT
"""

import socket
import struct
import sys
import threading

CAPSULE_RESP, C2H_DATA = 5, 7


def exactly(stream, length):
    data = b""
    while len(data) < length:
        more = stream.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def copy(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)


def answers(target, host, spoils):
    while True:
        pdu = exactly(target, 8)
        pdu += exactly(target, struct.unpack_from("<I", pdu, 4)[0] - 8)
        if spoils and pdu[0] == C2H_DATA:
            spoils = False
            cid = struct.unpack_from("<H", pdu, 8)[0]
            pdu = struct.pack("<BBBBIQHHHH", CAPSULE_RESP, 0, 24, 0, 24, 0, 0xFFFF, 0, cid, 0)
        host.sendall(pdu)


def quietly(function, *arguments):
    try:
        function(*arguments)
    except (EOFError, OSError):
        pass
    for stream in arguments[:2]:
        try:
            stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def main():
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    print("ready", flush=True)
    is_first = True
    while True:
        host, _ = listener.accept()
        target = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
        for work in [(copy, host, target), (answers, target, host, not is_first)]:
            threading.Thread(target=quietly, args=work, daemon=True).start()
        is_first = False


main()
