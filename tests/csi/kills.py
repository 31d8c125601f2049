"""Lives of volumes, while driver, target and attachments are killed at any time.

Each life: create, publish, stage, write, perhaps a snapshot and a copy of it, perhaps down and up again, delete. What was
synced is there whenever the volume is mounted again; at the end the caller checks that nothing is left.
"""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

from csi_client import Csi, Pod, read, write
from processes import Process

socket, proto, rounds, roadtrain, driver, port, rpc, stores, work = sys.argv[1:10]
seed = int(os.environ.get("KILL_SEED", random.randrange(1 << 32)))
print(f"KILL_SEED={seed}", flush=True)
WORKERS = 3
kills = {"driver": 0, "target": 0, "attachment": 0}
stop = threading.Event()


target = Process("target", [roadtrain, "serve", "--rpc", rpc, "--state", f"{work}/state.toml", "--lvstore",
                            f"vols={stores}/vols,size=4GiB", "--lvstore", f"more={stores}/more,size=1GiB"],
                 {"ROADTRAIN_RUNTIME_DIR": f"{work}/served"}, b"ready", work)
plugin = Process("driver", [driver, "--endpoint", f"unix://{socket}", "--node-id", "node-1", "--target",
                            f"127.0.0.1:{port}", "--rpc", rpc, "--store", "vols", "--store", "more", "--attach", "fuse",
                            "--roadtrain", roadtrain, "--run-dir", f"{work}/node"], {}, b" ready ", work)


def kill_attachment(choose):
    listed = subprocess.run([roadtrain, "list", "--json"], capture_output=True, check=False).stdout
    alive = [row for row in json.loads(listed or "[]") if row["kind"] == "attachment" and row["state"] != "gone"]
    if alive:
        try:
            os.kill(choose.choice(alive)["pid"], signal.SIGKILL)
            kills["attachment"] += 1
        except ProcessLookupError:
            pass


def killer(failures):
    choose = random.Random(seed)
    try:
        while not stop.wait(choose.uniform(0.1, 2.0)):
            what = choose.choice(["driver", "driver", "target", "attachment"])
            if what == "attachment":
                kill_attachment(choose)
                continue
            process = plugin if what == "driver" else target
            process.kill()
            kills[what] += 1
            if choose.random() < 0.2:
                time.sleep(choose.uniform(0, 1.5))
            process.start()
    except BaseException as error:
        failures.append(f"killer: {error!r}")


class Life:
    """A volume from its creation to its end."""

    def __init__(self, csi, number, node):
        self.csi, self.number, self.node = csi, number, node
        self.choose = random.Random(seed * 1000 + number)
        self.files = {}

    def run(self):
        csi, choose, name = self.csi, self.choose, f"pvc-{self.number}"
        fs_type = "ext4"
        capability = csi.capability(fs_type=fs_type)
        store = choose.choice(["vols", "more"])
        volume = csi.create(name, 32, capability, parameters={"store": store, "provisioning": "thin"})
        self.pod = Pod(csi, volume.volume_id, f"{work}/kubelet", name, capability)
        self.pod.up(self.node)
        for number in range(choose.randint(1, 3)):
            self.write(f"file-{number}", f"{name} {number} ".encode() * choose.randint(1, 20000))
        self.check()
        if choose.random() < 0.3:
            self.pod.down(self.node)
            self.pod.up(self.node)
            self.check()
        self.pod.down(self.node)
        if choose.random() < 0.3:
            self.copy(volume, capability)
        csi.until("DeleteVolume", volume_id=volume.volume_id)

    def copy(self, volume, capability):
        csi, name = self.csi, f"pvc-{self.number}-copy"
        source = csi.pb.VolumeContentSource
        snapshot = None
        if self.choose.random() < 0.5:
            members = {"source_volume_id": volume.volume_id, "name": f"snapshot-{self.number}"}
            snapshot = csi.until("CreateSnapshot", **members).snapshot
            source = source(snapshot=source.SnapshotSource(snapshot_id=snapshot.snapshot_id))
        else:
            source = source(volume=source.VolumeSource(volume_id=volume.volume_id))
        copy = csi.create(name, 48, capability, source, parameters={"provisioning": "thin"})
        self.pod = Pod(csi, copy.volume_id, f"{work}/kubelet", name, capability)
        self.pod.up(self.node)
        self.check()
        self.pod.down(self.node)
        csi.until("DeleteVolume", volume_id=copy.volume_id)
        if snapshot:
            csi.until("DeleteSnapshot", snapshot_id=snapshot.snapshot_id)

    def write(self, name, content):
        self.until_done(lambda: write(self.pod.file(name), content))
        self.files[name] = content

    def check(self):
        for name, content in self.files.items():
            found = self.until_done(lambda name=name: read(self.pod.file(name)))
            assert found == content, f"{self.pod.name}: {name} has {len(found)} bytes, not {len(content)}"

    def until_done(self, do):
        """Does it; when the disk fails the pod is started anew, and what was synced is there."""
        for _ in range(50):
            try:
                return do()
            except OSError as error:
                if error.errno == errno.ENOENT and self.is_healthy():
                    raise AssertionError(f"{self.pod.name}: {error}") from None
                self.pod.unpublish()
                # Kubernetes does not stage again for a new pod.
                if self.choose.random() < 0.5:
                    self.pod.stage()
                self.pod.publish()
        raise AssertionError(f"{self.pod.name}: the disk fails again and again")

    def is_healthy(self):
        """True if the volume is attached and mounted: then a file that is not there is lost."""
        health = self.csi.until("NodeGetVolumeHealth", volume_id=self.pod.volume_id,
                                volume_publish_path=self.pod.target).volume_health
        return not health.health_statuses


def worker(csi, numbers, node, failures):
    for number in numbers:
        if failures:
            return
        try:
            Life(csi, number, node).run()
            print(f"life {number} done", flush=True)
        except BaseException as error:
            import traceback
            traceback.print_exc()
            failures.append(f"life {number}: {error!r}")


def main():
    failures = []
    target.start()
    plugin.start()
    csi = Csi(socket, proto)
    node = csi("NodeGetInfo").node_id
    threads = [threading.Thread(target=worker, args=(csi, range(first, int(rounds), WORKERS), node, failures))
               for first in range(WORKERS)]
    kill = threading.Thread(target=killer, args=(failures,))
    begin = time.monotonic()
    for thread in [*threads, kill]:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    kill.join()
    for process in [target, plugin]:
        with open(f"{work}/{process.name}.pid", "w", encoding="utf-8") as pid:
            pid.write(str(process.process.pid))
    for failure in failures:
        print(f"failed: {failure}")
    killed = ", ".join(f"{name} {count} times" for name, count in kills.items())
    print(f"measured: {rounds} lives in {time.monotonic() - begin:.0f} s; killed: {killed}", flush=True)
    os._exit(1 if failures else 0)


main()
