"""What is no request, and who never ends one: each is refused within bounds while others are served."""

import json
import socket
import sys
import time

path = sys.argv[1]


def connect():
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(20)
    stream.connect(path)
    return stream


def read(stream):
    """Answers until the end of the stream."""
    raw = b""
    try:
        while piece := stream.recv(65536):
            raw += piece
    except ConnectionResetError:
        pass
    return [json.loads(line) for line in raw.splitlines()]


def ask(raw, ends=True):
    """What comes back; `ends`: the target has to end the connection by itself."""
    stream = connect()
    try:
        stream.sendall(raw)
        if not ends:
            stream.shutdown(socket.SHUT_WR)
    except BrokenPipeError:
        pass
    return read(stream)


def code(raw, ends=True):
    answers = ask(raw, ends)
    assert len(answers) == 1, answers
    return answers[0]["error"]["code"]


call = {"jsonrpc": "2.0", "method": "rpc_get_methods", "id": 1}
for broken in [
    b"GET / HTTP/1.1\r\n\r\n",
    b"]",
    b'{"method":}',
    b"[" * 100_000,
    b'{"a":' * 10_000,
    b'["' + b"x" * (1 << 20),
    b"[" + b"1," * 10_000,
    b'{"method":"\xff","id":1}',
]:
    assert code(broken) == -32700, broken[:40]
for odd in [b"{}", b"[]", b'{"method":1}', b'{"method":"a","method":"b"}', b'{"method":"a","id":[]}']:
    assert code(odd, ends=False) == -32600, odd

# Indented, without separators, in single bytes, several at once.
text = (json.dumps(call, indent=2) + json.dumps(call) + "\n" + json.dumps([call, call])).encode()
stream = connect()
for byte in text:
    stream.sendall(bytes([byte]))
stream.shutdown(socket.SHUT_WR)
answers = read(stream)
assert [type(answer) for answer in answers] == [dict, dict, list], answers

# 64 connections, each with half a request; who comes then is not served, and the others are.
half = []
for _ in range(63):
    slow = connect()
    slow.sendall(b'{"method":"rpc_get')
    half.append(slow)
busy = connect()
busy.sendall(json.dumps(call).encode())
assert b'"result"' in busy.recv(1 << 20)
assert ask(json.dumps(call).encode()) == []
# Dripping does not make it last: half a minute after they began, they end.
until = time.monotonic() + 45
while time.monotonic() < until and half:
    time.sleep(3)
    for slow in half[:]:
        try:
            slow.sendall(b"_")
        except OSError:
            half.remove(slow)
assert not half, f"{len(half)} slow connections are still there"
busy.sendall(json.dumps(call).encode())
assert b'"result"' in busy.recv(1 << 20)
