"""Eight clients make and delete a thousand volumes while their target is killed: what it has answered is so, and its
answers, its index, its files and what hosts see are one.

volumes_killed.py SOCKET FOLDER PORT ROADTRAIN COUNT KILLED: makes COUNT volumes. With KILLED not 0 it kills that process
when half of them are made, prints what is known to be so, and ends. Without it checks what is read from stdin, goes on to
the end, and leaves nothing.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

from volumes_rpc import Refused, Rpc

path, folder, port, roadtrain, count, target = sys.argv[1:]
count, target = int(count), int(target)
CLIENTS = 8
lock = threading.Lock()
state = {"made": {}, "deleted": [], "open": []}


def nqn(client):
    return f"nqn.2026-11.test:killed{client}"


def note(change):
    with lock:
        change()
        if target and len(state["made"]) == count // 2:
            os.kill(target, signal.SIGKILL)


def run(client, begin):
    """Its volumes, every fourth of them a namespace, every second deleted again."""
    call = Rpc(path)
    for number in range(begin + client, count, CLIENTS):
        name, doing = f"v{number}", None
        try:
            with lock:
                state["open"].append(name)
            uuid = call("bdev_lvol_create", lvol_name=name, size_in_mib=4, lvs_name="vols", thin_provision=number % 3 == 0)
            note(lambda: (state["made"].__setitem__(name, uuid), state["open"].remove(name)))
            if number % 4 < 2:
                call("nvmf_subsystem_add_ns", nqn=nqn(client), namespace={"bdev_name": uuid})
            if number % 2:
                with lock:
                    state["open"].append(name)
                call("bdev_lvol_delete", name=f"vols/{name}")
                note(lambda: (state["deleted"].append(name), state["open"].remove(name)))
        except (ConnectionError, OSError):
            return


def together(begin):
    threads = [threading.Thread(target=run, args=(client, begin)) for client in range(CLIENTS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def seen_by_hosts(client):
    """NSIDs and UUIDs, as a host reads them."""
    out = subprocess.run([roadtrain, "list", "-a", "127.0.0.1", "-s", port, "-n", nqn(client), "--json"],
                         check=True, capture_output=True, text=True).stdout
    shown = json.loads(out)
    shown = shown["namespaces"] if isinstance(shown, dict) else shown
    return {(one["nsid"], one["uuid"]) for one in shown}


def check():
    """Everything that knows of volumes knows the same ones; they are returned by name."""
    call = Rpc(path)
    volumes = call("bdev_lvol_get_lvols", lvs_name="vols")
    known = {one["name"]: one["uuid"] for one in volumes}
    assert len(known) == len(volumes)
    devices = call("bdev_get_bdevs")
    assert [one["name"] for one in devices] == [one["uuid"] for one in volumes]
    assert [one["aliases"][0] for one in devices] == [one["alias"] for one in volumes]
    with open(os.path.join(folder, "store.json"), encoding="utf-8") as file:
        index = json.load(file)["volumes"]
    assert {one["name"]: one["uuid"] for one in index} == known
    for _ in range(200):  # deleted files go in the background
        files = set(os.listdir(folder)) - {"store.json", "store.json.spare"}
        if files == set(known.values()):
            break
        time.sleep(0.05)
    assert files == set(known.values()), files ^ set(known.values())
    for client, subsystem in enumerate(call("nvmf_get_subsystems")[1:]):
        assert subsystem["nqn"] == nqn(client)
        namespaces = {(one["nsid"], one["bdev_name"]) for one in subsystem["namespaces"]}
        assert {uuid for _, uuid in namespaces} <= set(known.values())
        assert namespaces == seen_by_hosts(client), client
    return known


call = Rpc(path)
if target:
    for client in range(CLIENTS):
        call("nvmf_create_subsystem", nqn=nqn(client), allow_any_host=True, max_namespaces=1024)
        address = {"trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": port}
        call("nvmf_subsystem_add_listener", nqn=nqn(client), listen_address=address)
    together(0)
    assert len(state["made"]) >= count // 2
    json.dump(state, sys.stdout)
    sys.exit()

before = json.load(sys.stdin)
known = check()
for name, uuid in before["made"].items():
    if name not in before["open"] and name not in before["deleted"]:
        assert known.get(name) == uuid, f"{name} was made, and is gone"
for name in before["deleted"]:
    assert name not in known, f"{name} was deleted, and is there"
for name in known:
    assert name in before["made"] or name in before["open"], f"nobody has made {name}"
done = 1 + max(int(name[1:]) for name in [*before["made"], *before["open"]])
together(-(-done // CLIENTS) * CLIENTS)
for name in check():
    call("bdev_lvol_delete", name=f"vols/{name}")
    try:
        call("bdev_lvol_delete", name=f"vols/{name}")
        raise AssertionError("deleted twice")
    except Refused as error:
        assert error.code == -19, error
assert check() == {}
store = call("bdev_lvol_get_lvstores")[0]
assert store["free_clusters"] == store["total_data_clusters"], store
