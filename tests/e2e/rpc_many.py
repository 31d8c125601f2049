"""Changes by eight clients at once. First: until the target is killed. Second: what was answered is there."""

import json
import os
import signal
import socket
import sys
import threading

path, port, files, turn = sys.argv[1:5]
CLIENTS, CHANGES = 8, 125


class Client:
    def __init__(self):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(60)
        self.stream.connect(path)
        self.raw = b""

    def call(self, method, **params):
        self.stream.sendall(json.dumps({"method": method, "params": params, "id": 1}).encode())
        while b"\n" not in self.raw:
            piece = self.stream.recv(65536)
            if not piece:
                raise ConnectionError("the target has ended")
            self.raw += piece
        line, self.raw = self.raw.split(b"\n", 1)
        answer = json.loads(line)
        assert "error" not in answer, (method, params, answer["error"])
        return answer["result"]


def nqn(number, at):
    return f"nqn.2026-11.test:many{number}.{at}"


def changes(number):
    """Five changes make a device, a subsystem with it, and every other time they go again."""
    for at in range(CHANGES // 5):
        device, name = f"d{number}.{at}", nqn(number, at)
        if at % 2:
            image = f"{files}/{device}.img"
            with open(image, "wb") as file:
                file.truncate(1 << 20)
            yield "bdev_aio_create", {"name": device, "filename": image, "block_size": 512}, ("device", device, True)
        else:
            yield "bdev_malloc_create", {"name": device, "num_blocks": 2048, "block_size": 512}, ("device", device, True)
        yield "nvmf_create_subsystem", {"nqn": name, "allow_any_host": True}, ("subsystem", name, True)
        yield "nvmf_subsystem_add_ns", {"nqn": name, "namespace": {"bdev_name": device, "nsid": 1}}, ("namespace", name, True)
        address = {"trtype": "tcp", "traddr": "127.0.0.1", "trsvcid": port}
        yield "nvmf_subsystem_add_listener", {"nqn": name, "listen_address": address}, ("listener", name, True)
        if at % 4 == 3:
            yield "nvmf_delete_subsystem", {"nqn": name}, ("subsystem", name, False)
        else:
            yield "nvmf_subsystem_add_host", {"nqn": name, "host": "nqn.2026-11.test:host"}, ("host", name, True)


def first():
    lock, log, target = threading.Lock(), open("answered.txt", "a", buffering=1), int(sys.argv[5])
    answered = 0

    def work(number):
        nonlocal answered
        client = Client()
        for at, (method, params, _) in enumerate(changes(number)):
            try:
                client.call(method, **params)
            except (ConnectionError, OSError):
                return
            with lock:
                print(number, at, file=log)
                answered += 1
                if answered == 300:
                    os.kill(target, signal.SIGKILL)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def second():
    answered = {}
    for line in open("answered.txt"):
        number, at = map(int, line.split())
        answered[number] = at
    count = sum(at + 1 for at in answered.values())
    assert 300 <= count < CLIENTS * CHANGES, f"{count} changes were answered before the target was killed"
    client = Client()
    devices = {device["name"]: device for device in client.call("bdev_get_bdevs")}
    subsystems = {one["nqn"]: one for one in client.call("nvmf_get_subsystems")[1:]}
    expected_devices, expected_subsystems = set(), set()
    for number, last in answered.items():
        for at, (_, _, (kind, name, there)) in enumerate(changes(number)):
            if at > last + 1:
                break  # one more may have been done and not answered
            surely = at <= last
            if kind == "device":
                expected_devices.add(name)
                assert name in devices or not surely, f"{name} is gone"
            elif kind == "subsystem" and there:
                expected_subsystems.add(name)
            elif kind == "subsystem" and surely:
                assert name not in subsystems, f"{name} is back"
            if kind in ("namespace", "listener", "host") and surely and name in subsystems:
                member = {"namespace": "namespaces", "listener": "listen_addresses", "host": "hosts"}[kind]
                assert subsystems[name][member], f"{name} has no {kind}"
    assert set(devices) <= expected_devices, set(devices) - expected_devices
    assert set(subsystems) <= expected_subsystems, set(subsystems) - expected_subsystems
    for one in subsystems.values():
        for namespace in one["namespaces"]:
            assert devices[namespace["bdev_name"]]["claimed"]
            assert namespace["uuid"] == devices[namespace["bdev_name"]]["uuid"]
    for name in devices:
        assert name.startswith("d") and (int(name.split(".")[1]) % 2 == 0 or os.path.exists(f"{files}/{name}.img"))
    # What is left of the thousand changes is done now.
    print(f"measured: {sum(at + 1 for at in answered.values())} changes were answered before the kill")


first() if turn == "first" else second()
