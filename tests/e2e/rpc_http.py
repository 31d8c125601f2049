"""JSON-RPC over HTTP: who may call, and what the answers look like."""

import base64
import http.client
import json
import socket
import sys
import threading
import time

host, port = sys.argv[1].split(":")
right = base64.b64encode(f"{sys.argv[2]}:{sys.argv[3]}".encode()).decode()
call = json.dumps({"method": "rpc_get_methods", "id": 1})


def ask(body=call, method="POST", credentials=right, path="/", headers=None):
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    headers = dict(headers or {})
    if credentials is not None:
        headers["Authorization"] = "Basic " + credentials
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer, answer.read()


answer, body = ask()
assert answer.status == 200 and "bdev_get_bdevs" in json.loads(body)["result"]
assert answer.getheader("Content-Length") == str(len(body)) and answer.getheader("Content-Type") == "application/json"
assert ask(path="/any/path")[0].status == 200
answer, body = ask(json.dumps({"method": "eat", "id": 2}))
assert answer.status == 200 and json.loads(body)["error"]["code"] == -32601, "errors are answers, too"
assert ask(json.dumps([json.loads(call)]))[0].status == 200
assert ask(json.dumps({"method": "rpc_get_methods"}))[0].status == 204
for broken in ["", "x", "{", "[" * 1000, '{"method":}']:
    assert ask(broken)[0].status == 400, broken
assert ask("[" + "1," * (1 << 18))[0].status == 413
assert ask(method="GET", body=None)[0].status == 405
assert ask(iter([call.encode()]))[0].status == 200, "in chunks"

# Head and body come in one piece.
stream = socket.create_connection((host, int(port)), timeout=20)
small = json.dumps({"method": "spdk_get_version", "id": 1})
stream.sendall(f"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {right}\r\nContent-Length: {len(small)}\r\n\r\n{small}".encode())
piece = stream.recv(1 << 16)
assert piece.startswith(b"HTTP/1.1 200") and piece.rstrip().endswith(b"}"), piece

# Without credentials and with wrong ones; many of them are slowed, and right ones are not.
for wrong in [None, "", "!", base64.b64encode(b"ada:x").decode(), base64.b64encode(b"ada").decode()]:
    assert ask(credentials=wrong)[0].status == 401, wrong
stop = threading.Event()
tries = []


def guess():
    while not stop.is_set():
        assert ask(credentials=base64.b64encode(b"ada:guess").decode())[0].status == 401
        tries.append(1)


threads = [threading.Thread(target=guess) for _ in range(16)]
for thread in threads:
    thread.start()
begun = time.monotonic()
time.sleep(4)
before = time.monotonic()
assert ask()[0].status == 200
assert time.monotonic() - before < 5, "right credentials wait for wrong ones"
elapsed, count = time.monotonic() - begun, len(tries)
stop.set()
for thread in threads:
    thread.join()
assert count <= 10 + 16 * (elapsed + 1), f"{count} guesses in {elapsed:.1f} s"
