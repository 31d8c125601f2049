"""JSON-RPC over HTTP: access control, and the form of the replies."""

import base64
import http.client
import json
import multiprocessing
import os
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
stream.sendall(f"POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {right}\r\nContent-Length: {len(small)}\r\n\r\n{small}".encode())
piece = stream.recv(1 << 16)
assert piece.startswith(b"HTTP/1.1 200") and piece.rstrip().endswith(b"}"), piece

# What pages of other sites can have a browser send: forms, and requests that say from where or to whom.
for fields, status in [
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ({"Content-Type": "text/plain;charset=UTF-8"}, 415),
    ({"Content-Type": "application/json"}, 200),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Host": "evil.example"}, 421),
    ({"Host": "localhost"}, 200),
]:
    assert ask(headers=fields)[0].status == status, fields

# Without credentials and with wrong ones; many of them are slowed, and right ones are not.
for wrong in [None, "", "!", base64.b64encode(b"ada:x").decode(), base64.b64encode(b"ada").decode()]:
    assert ask(credentials=wrong)[0].status == 401, wrong


def guess(stop, tries):
    while not stop.is_set():
        try:
            assert ask(credentials=base64.b64encode(b"ada:guess").decode())[0].status == 401
            with tries:
                tries.value += 1
        except (OSError, http.client.HTTPException):
            time.sleep(0.02)  # its place was another's


def guessers(stop, tries):
    threads = [threading.Thread(target=guess, args=(stop, tries)) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# Sixty at once who have right ones.
many = [threading.Thread(target=lambda: statuses.append(ask()[0].status)) for _ in range(60)]
statuses = []
for thread in many:
    thread.start()
for thread in many:
    thread.join()
assert statuses == [200] * 60, statuses

# More guessers than there are places, and others who say nothing: new connections with right ones are answered at once,
# and those that are there stay.
kept = http.client.HTTPConnection(host, int(port), timeout=20)
kept.request("POST", "/", call, {"Authorization": "Basic " + right})
assert kept.getresponse().read()
silent = [socket.create_connection((host, int(port)), timeout=20) for _ in range(40)]
stop, tries = multiprocessing.Event(), multiprocessing.Value("i")
processes = [multiprocessing.Process(target=guessers, args=(stop, tries), daemon=True) for _ in range(2)]
for process in processes:
    process.start()
begun = time.monotonic()
time.sleep(4 if os.environ.get("THOROUGH") == "1" else 0.5)
slowest = 0
for _ in range(20 if os.environ.get("THOROUGH") == "1" else 5):
    before = time.monotonic()
    assert ask()[0].status == 200
    slowest = max(slowest, time.monotonic() - before)
    time.sleep(0.1)
kept.request("POST", "/", call, {"Authorization": "Basic " + right})
assert kept.getresponse().status == 200, "what has shown credentials stays"
elapsed, count = time.monotonic() - begun, tries.value
stop.set()
for process in processes:
    process.join()
print(f"measured: {count} guesses answered in {elapsed:.1f} s; right credentials in {slowest:.3f} s at most")
assert slowest < 1.5, f"right credentials wait for wrong ones: {slowest:.1f} s"
assert count <= 10 + 64 * (elapsed + 1), f"{count} guesses in {elapsed:.1f} s"
