"""Thousands of null devices and namespaces by JSON-RPC: counts, lists, one change, many changes while a host is
connected. Times are printed, not judged. The environment has the program in ROADTRAIN.

rpc_thousands.py SOCKET PID COUNT METRICS PORT: the target's process, and the addresses of its metrics and its listener."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.dirname(__file__))
from nvme_tcp import Host

path, pid, count, metrics, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
NQN = "nqn.2026-11.test:thousands"
PAGE = 1024
changed = range(count // 2, count // 2 + 5)


class Client:
    def __init__(self):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(600)
        self.stream.connect(path)

    def call(self, method, **params):
        self.stream.sendall(json.dumps({"method": method, "params": params, "id": 1}).encode())
        raw = b""
        while not raw.endswith(b"\n"):
            piece = self.stream.recv(1 << 20)
            if not piece:
                raise ConnectionError("the target has ended")
            raw += piece
        answer = json.loads(raw)
        assert "error" not in answer, (method, params, answer["error"])
        return answer["result"]


def cpu(process=pid):
    """CPU seconds of a process."""
    fields = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident():
    pages = int(open(f"/proc/{pid}/statm").read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measured(what, run, times=1):
    before, since = cpu(), time.monotonic()
    result = run()
    seconds, used = time.monotonic() - since, cpu() - before
    each = f", {used / times * 1e3:.2f} ms of CPU each" if times > 1 else ""
    print(f"measured: {what}: {seconds:.2f} s, {used:.2f} s of CPU{each}", flush=True)
    return result


class AdminQueue(Host):
    """The admin queue of a host, with the data that commands return."""

    def read(self, opcode, nsid, cdw10, length, cdw11=0):
        sqe = bytearray(64)
        sqe[0], sqe[1] = opcode, 0x40
        struct.pack_into("<I", sqe, 4, nsid)
        struct.pack_into("<QIBBBB", sqe, 24, 0, length, 0, 0, 0, 0x5A)
        struct.pack_into("<II", sqe, 40, cdw10, cdw11)
        self.cid = (self.cid + 1) % 1000
        struct.pack_into("<H", sqe, 2, self.cid)
        self.socket.sendall(struct.pack("<BBBBI", 4, 0, 72, 0, 72) + bytes(sqe))
        data = bytearray()
        while True:
            kind, body = self.pdu()
            if kind == 5:
                status = struct.unpack("<H", body[14:16])[0] >> 1
                assert status == 0, hex(status)
                return bytes(data)
            assert kind == 7, f"PDU {kind}"
            data += body[16:]

    def nsids(self):
        """The active namespaces, and the number of pages that list them."""
        found, pages = [], 0
        while True:
            page = self.read(0x06, found[-1] if found else 0, 2, 4096)
            page = [nsid for (nsid,) in struct.iter_unpack("<I", page) if nsid]
            pages += 1
            found += page
            if len(page) < PAGE:
                return found, pages

    def changed(self):
        page = self.read(0x02, 0xFFFFFFFF, 0x04 | 1023 << 16, 4096)
        return [nsid for (nsid,) in struct.iter_unpack("<I", page) if nsid]


def make(client):
    client.call("nvmf_create_subsystem", nqn=NQN, allow_any_host=True, max_namespaces=16384)
    address = {"trtype": "tcp", "traddr": "127.0.0.1", "trsvcid": str(port)}
    client.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=address)
    before = resident()

    def devices():
        for n in range(1, count + 1):
            client.call("bdev_null_create", name=f"n{n}", num_blocks=2048, block_size=512)

    def namespaces():
        for n in range(1, count + 1):
            assert client.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": f"n{n}"}) == n

    measured(f"{count} null devices", devices, count)
    measured(f"{count} namespaces", namespaces, count)
    print(f"measured: {(resident() - before) / count / 1024:.2f} KiB of memory for each", flush=True)


def check(client):
    devices = measured("bdev_get_bdevs", lambda: client.call("bdev_get_bdevs"))
    assert len(devices) == count and all(device["claimed"] for device in devices)
    subsystems = measured("nvmf_get_subsystems", lambda: client.call("nvmf_get_subsystems", nqn=NQN))
    shown = subsystems[0]["namespaces"]
    assert [one["nsid"] for one in shown] == list(range(1, count + 1))
    assert [one["bdev_name"] for one in shown] == [f"n{n}" for n in range(1, count + 1)]
    measured("bdev_get_iostat", lambda: client.call("bdev_get_iostat"))


def host():
    queue = AdminQueue(("127.0.0.1", port))
    status, result = queue.connect(NQN, "nqn.2026-11.test:host")
    assert status == 0, hex(status)
    queue.enable()
    return queue


def change(client, queue):
    queue.changed()

    def some():
        for n in changed:
            client.call("nvmf_subsystem_remove_ns", nqn=NQN, nsid=n)
            client.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": f"n{n}", "nsid": n})

    measured("one change", some, 2 * len(changed))
    assert queue.changed() == list(changed)
    active, _ = queue.nsids()
    assert not set(changed) & set(active), "what was removed is inactive first"

    def all_go():
        for n in range(1, PAGE + 2):
            client.call("nvmf_subsystem_remove_ns", nqn=NQN, nsid=n)

    measured(f"{PAGE + 1} namespaces removed", all_go, PAGE + 1)
    assert queue.changed() == [0xFFFFFFFF], "more than the list holds"
    assert queue.changed() == []
    for n in range(1, PAGE + 2):
        client.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": f"n{n}", "nsid": n})


def storm(client):
    """A host of four lanes uses the last namespace while others go and come back: it gets an event for each."""
    uri = f"nbd:unix:{os.getcwd()}/storm.sock"
    command = [os.environ["ROADTRAIN"], "attach", "-a", "127.0.0.1", "-s", str(port), "-n", NQN, "--nsid", str(count)]
    attached = subprocess.Popen([*command, "--as", uri, "--lanes", "4"], stdout=subprocess.PIPE, text=True)
    try:
        for line in attached.stdout:
            if line.startswith("ready"):
                break

        def changes():
            for n in range(1, PAGE + 2):
                client.call("nvmf_subsystem_remove_ns", nqn=NQN, nsid=n)
            for n in range(1, PAGE + 2):
                client.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": f"n{n}", "nsid": n})

        before = cpu(attached.pid)
        measured(f"{2 * PAGE + 2} changes with a host", changes, 2 * PAGE + 2)
        read = ["nbdcopy", f"nbd+unix:///?socket={os.getcwd()}/storm.sock", "storm.img"]
        measured("a namespace is read after that", lambda: subprocess.run(read, check=True))
        print(f"measured: {cpu(attached.pid) - before:.2f} s of CPU of that host", flush=True)
    finally:
        attached.terminate()
        assert attached.wait(60) == 0


def scrape(query, most):
    text = urllib.request.urlopen(f"http://{metrics}/metrics{query}").read().decode()
    series = text.count("\nroadtrain_namespace_capacity_bytes{")
    left_out = int(text.split("\nroadtrain_namespaces_left_out ")[1].split()[0])
    assert series == most, (query, series)
    return left_out


def main():
    client = Client()
    if os.environ.get("AGAIN"):
        measured("lists after a restart", lambda: check(client))
        return
    make(client)
    check(client)
    queue = host()
    active, pages = measured("Identify, active list", queue.nsids)
    assert active == list(range(1, count + 1)) and pages == count // PAGE + 1
    change(client, queue)
    queue.close()
    storm(client)
    left_out = measured("/metrics", lambda: scrape("", min(count, PAGE)))
    assert left_out == max(0, count - PAGE)
    assert measured("/metrics?limit=16384", lambda: scrape("?limit=16384", count)) == 0
    assert measured("/metrics?namespace=7", lambda: scrape("?namespace=7", 1)) == 0
    assert scrape(f"?namespace={NQN}/{count}&namespace={NQN}/99999", 1) == 0
    snapshot = measured("/snapshot.json", lambda: urllib.request.urlopen(f"http://{metrics}/snapshot.json").read())
    print(f"measured: /snapshot.json: {len(snapshot) / 1e6:.1f} MB")
    assert len(json.loads(snapshot)["namespaces"]) == count


main()
