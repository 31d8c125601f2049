"""The driver is killed at each of its steps, one after the other: before and after each call that changes the target, and
before and after each command that changes the node. Each life of a volume comes to the same end, and leaves nothing.
"""

import json
import os
import socket as sockets
import sys
import threading
import time

from csi_client import Csi, Pod, read, write
from processes import Process

socket, proto, roadtrain, driver, port, rpc, stores, work = sys.argv[1:9]
COMMANDS = ["mkfs.ext4", "e2fsck", "mount", "resize2fs"]
proxy, shims = f"{work}/proxy.sock", f"{work}/shims"
lock = threading.Lock()
points = {"count": 0, "kill_at": 0, "killed": ""}


def tick(what):
    """One point; the driver is killed here if it is the one. It is started again meanwhile."""
    with lock:
        points["count"] += 1
        if points["count"] != points["kill_at"]:
            return
        points["killed"] = what
        plugin.kill()
        threading.Thread(target=plugin.start).start()


def is_change(request):
    words = ["get_", "spdk_get", "keyring_get"]
    return not any(word in request["method"] for word in words)


def pipe(connection):
    """One call of the driver, to the target and back."""
    try:
        with connection, sockets.socket(sockets.AF_UNIX) as target_socket:
            line = connection.makefile("rb").readline()
            if not line:
                return
            request = json.loads(line)
            if is_change(request):
                tick(f"before {request['method']}")
            target_socket.connect(rpc)
            target_socket.sendall(line)
            reply = target_socket.makefile("rb").readline()
            if is_change(request):
                tick(f"after {request['method']}")
            connection.sendall(reply)
    except OSError:
        pass  # the driver is dead


def serve(listener, handle):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=handle, args=(connection,), daemon=True).start()


def command_tick(connection):
    with connection:
        tick(connection.makefile("r").readline().strip())
        try:
            connection.sendall(b"go\n")
        except OSError:
            pass


def make_shims(tick_port):
    os.makedirs(shims)
    for name in [*COMMANDS, "roadtrain"]:
        real = roadtrain if name == "roadtrain" else next(
            path for folder in os.environ["PATH"].split(":") if os.access(path := f"{folder}/{name}", os.X_OK))
        quiet = 'case $1 in list | status) exec "$real" "$@" ;; esac' if name == "roadtrain" else ""
        with open(f"{shims}/{name}", "w", encoding="utf-8") as file:
            file.write(f"""#!/bin/bash
real={real}
{quiet}
tick() {{ exec 9<>/dev/tcp/127.0.0.1/{tick_port} && echo "$1 {name} ${{words[0]}}" >&9 && read -r _ <&9 && exec 9>&-; }}
words=("$@")
tick before
"$real" "$@"
status=$?
tick after
exit $status
""")
        os.chmod(f"{shims}/{name}", 0o755)


def life(csi, number, node):
    """A volume, a copy of it that takes every step, both used and deleted."""
    folder = f"{work}/kubelet"
    first = csi.create(f"pvc-{number}", 32, parameters={"store": "vols"})
    pod = Pod(csi, first.volume_id, folder, f"pvc-{number}")
    pod.up(node)
    content = f"life {number}".encode() * 1000
    write(pod.file("a"), content)
    pod.down(node)
    source = csi.pb.VolumeContentSource
    source = source(volume=source.VolumeSource(volume_id=first.volume_id))
    copy = csi.create(f"copy-{number}", 36, source=source, parameters={"provisioning": "thick"})
    snapshot = csi.until("CreateSnapshot", source_volume_id=copy.volume_id, name=f"snapshot-{number}").snapshot
    pod = Pod(csi, copy.volume_id, folder, f"copy-{number}")
    pod.up(node)
    assert read(pod.file("a")) == content
    pod.down(node)
    csi.until("DeleteSnapshot", snapshot_id=snapshot.snapshot_id)
    for volume in [first, copy]:
        csi.until("DeleteVolume", volume_id=volume.volume_id)


def call(method):
    with sockets.socket(sockets.AF_UNIX) as connection:
        connection.connect(rpc)
        connection.sendall(json.dumps({"id": 1, "method": method}).encode() + b"\n")
        return json.loads(connection.makefile("rb").readline())["result"]


def nothing_left():
    assert call("bdev_lvol_get_lvols") == [], call("bdev_lvol_get_lvols")
    assert len(call("nvmf_get_subsystems")) == 1, call("nvmf_get_subsystems")
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        assert f"{work}/node" not in mounts.read(), "a mount is left"
    assert not os.listdir(f"{work}/node"), os.listdir(f"{work}/node")


def main():
    target.start()
    with sockets.socket() as ticks, sockets.socket(sockets.AF_UNIX) as calls:
        ticks.bind(("127.0.0.1", 0))
        calls.bind(proxy)
        for listener, handle in [(ticks, command_tick), (calls, pipe)]:
            listener.listen(64)
            threading.Thread(target=serve, args=(listener, handle), daemon=True).start()
        make_shims(ticks.getsockname()[1])
        plugin.start()
        csi = Csi(socket, proto)
        node = csi.until("NodeGetInfo").node_id
        killed, begin = [], time.monotonic()
        while True:
            points.update(count=0, kill_at=len(killed) + 1, killed="")
            life(csi, len(killed), node)
            nothing_left()
            if not points["killed"]:
                break
            print(f"point {len(killed) + 1}: {points['killed']}", flush=True)
            killed.append(points["killed"])
        assert len(killed) > 40, killed
        for process in [target, plugin]:
            with open(f"{work}/{process.name}.pid", "w", encoding="utf-8") as pid:
                pid.write(str(process.process.pid))
        seconds = time.monotonic() - begin
        print(f"measured: the driver killed at each of {len(killed)} points, in {seconds:.0f} s", flush=True)
    os._exit(0)


target = Process("target", [roadtrain, "serve", "--rpc", rpc, "--state", f"{work}/state.toml", "--lvstore",
                            f"vols={stores}/vols,size=1GiB"], {"ROADTRAIN_RUNTIME_DIR": f"{work}/served"}, b"ready", work)
plugin = Process("driver", [driver, "--endpoint", f"unix://{socket}", "--node-id", "node-1", "--target",
                            f"127.0.0.1:{port}", "--rpc", proxy, "--store", "vols", "--attach", "fuse",
                            "--roadtrain", f"{shims}/roadtrain", "--run-dir", f"{work}/node"],
                 {"PATH": f"{shims}:{os.environ['PATH']}"}, b" ready ", work)
main()
