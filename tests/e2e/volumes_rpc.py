"""Calls over the Unix socket, as tests of volumes need them."""

import json
import socket


class Refused(Exception):
    """An error that a call was answered with."""

    def __init__(self, error):
        super().__init__(f"{error['message']} ({error['code']})")
        self.code, self.message = error["code"], error["message"]


class Rpc:
    """A connection."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")
        self.number = 0

    def __call__(self, method, **params):
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.socket.sendall(json.dumps(request).encode())
        line = self.file.readline()
        if not line:
            raise ConnectionError("the target is gone")
        answer = json.loads(line)
        assert answer["id"] == self.number, answer
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]


def refused(text, call, *args, **params):
    """The call is refused with that text, whatever its case."""
    try:
        result = call(*args, **params)
    except Refused as error:
        assert text in error.message.lower(), error
        return error
    raise AssertionError(f"{args} {params}: {result} instead of {text}")
