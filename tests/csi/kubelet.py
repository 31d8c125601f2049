"""Calls in the order of kubelet and of the sidecars, in phases: between two of them processes are killed.

kubelet.py SOCKET PROTO PHASE FOLDER. ATTACH: how the driver attaches (fuse)."""

import json
import os
import sys
import time

from csi_client import MIB, Csi, Pod, read, write

socket, proto, phase, folder = sys.argv[1:5]
csi = Csi(socket, proto)
notes = os.path.join(os.path.dirname(folder), "kubelet.json")
info = csi("NodeGetInfo")
node, topology = info.node_id, info.accessible_topology
assert csi("Probe").ready.value
# The kernel grows ext4 for those with CAP_SYS_RESOURCE only, which containers may lack.
with open("/proc/self/status", encoding="ascii") as status:
    can_grow_ext4 = int(status.read().split("CapEff:")[1].split()[0], 16) >> 24 & 1
if not can_grow_ext4:
    print("measured: not tested here: growth of ext4, as CAP_SYS_RESOURCE is missing")
# An ublk device in use grows from Linux 6.16 on.
release = [int(part) for part in os.uname().release.split(".")[:2]]
grows_in_use = os.environ.get("ATTACH") != "ublk" or release >= [6, 16]


def pods(known):
    block = csi.capability(block=True, mode="SINGLE_NODE_SINGLE_WRITER")
    files = Pod(csi, known["files"], folder, "files")
    other = Pod(csi, known["xfs"], folder, "xfs", csi.capability(fs_type="xfs", flags=["noatime"]))
    raw = Pod(csi, known["raw"], folder, "raw", block)
    for pod in [files, other, raw]:
        pod.published = known["published"].get(pod.name)
    return files, other, raw


def publish_context(pod):
    return dict(pod.published)


def reasons(pod):
    health = csi("NodeGetVolumeHealth", volume_id=pod.volume_id, volume_publish_path=pod.target).volume_health
    return [status.reason for status in health.health_statuses]


def raw_write(path, at, content):
    device = os.open(path, os.O_RDWR | os.O_DSYNC)
    os.pwrite(device, content, at)
    os.fsync(device)
    os.close(device)


def raw_read(path, at, count):
    device = os.open(path, os.O_RDONLY)
    try:
        return os.pread(device, count, at)
    finally:
        os.close(device)


def first():
    requirement = csi.pb.TopologyRequirement(requisite=[topology])
    files_volume = csi.create("pvc-files", accessibility_requirements=requirement)
    assert dict(files_volume.accessible_topology[0].segments) == dict(topology.segments)
    xfs = csi.create("pvc-xfs", 320, csi.capability(fs_type="xfs"), parameters={"store": "vols", "provisioning": "thin"})
    raw = csi.create("pvc-raw", 64, csi.capability(block=True), parameters={"store": "more"})
    known = {"files": files_volume.volume_id, "xfs": xfs.volume_id, "raw": raw.volume_id, "published": {}}
    files, other, block = pods(known)
    # A volume of one node is refused to another one, and shown as published.
    files.attach(node)
    assert "uses the volume" in csi.refused("FAILED_PRECONDITION", "ControllerPublishVolume", volume_id=files.volume_id,
                                           node_id=node + "x", volume_capability=files.capability)
    entries = {entry.volume.volume_id: entry.status for entry in csi("ListVolumes").entries}
    assert list(entries[files.volume_id].published_node_ids) == [node] and len(entries) == 3, entries
    assert not csi("ControllerGetVolumeHealth", volume_id=files.volume_id).volume_health.health_statuses
    assert not csi("ControllerListVolumeHealth").entries
    assert "publish" in csi.refused("FAILED_PRECONDITION", "DeleteVolume", volume_id=files.volume_id)
    for pod in [files, other, block]:
        pod.up(node)
        pod.up(node)  # each call may come twice
    write(files.file("a"), b"first" * 1000)
    write(other.file("a"), b"other" * 1000)
    assert b"noatime" in read("/proc/self/mounts").split(other.target.encode())[1].split(b"\n")[0]
    raw_write(block.target, 4096, b"raw" * 100)
    # Read-only for a second pod.
    reader = Pod(csi, files.volume_id, folder, "files", readonly=True)
    reader.published, reader.target = files.published, files.target + "-2"
    reader.publish()
    assert read(reader.file("a")) == b"first" * 1000
    try:
        write(reader.file("b"), b"")
        raise AssertionError("a read-only mount is written")
    except OSError:
        pass
    reader.unpublish()
    usage = csi("NodeGetVolumeStats", volume_id=files.volume_id, volume_path=files.target)
    assert usage.usage[0].total > 40 * MIB and reasons(files) == [], usage
    usage = csi("NodeGetVolumeStats", volume_id=block.volume_id, volume_path=block.target)
    assert usage.usage[0].total == 64 * MIB, usage
    known["published"] = {pod.name: publish_context(pod) for pod in [files, other, block]}
    with open(notes, "w", encoding="utf-8") as file:
        json.dump(known, file)


def again(known):
    files, other, block = pods(known)
    for pod in [files, other, block]:
        pod.stage()
        pod.publish()
    assert read(files.file("a")) == b"first" * 1000 and read(other.file("a")) == b"other" * 1000
    assert raw_read(block.target, 4096, 300) == b"raw" * 100
    # Growth while it is used, of each kind.
    for pod, mib in [(files, 96), (other, 384), (block, 128)]:
        before = csi("NodeGetVolumeStats", volume_id=pod.volume_id, volume_path=pod.target).usage[0].total
        grown = csi("ControllerExpandVolume", volume_id=pod.volume_id, capacity_range=csi.size(mib),
                    volume_capability=pod.capability)
        assert grown.capacity_bytes == mib * MIB and grown.node_expansion_required == (pod is not block)
        if pod is files and not can_grow_ext4:
            continue
        if not grows_in_use:
            text = csi.refused("UNAVAILABLE", "NodeExpandVolume", volume_id=pod.volume_id, volume_path=pod.target,
                               staging_target_path=pod.staging, capacity_range=csi.size(mib),
                               volume_capability=pod.capability)
            assert "staged again" in text, text
            pod.unpublish()
            pod.unstage()
            pod.stage()
            pod.publish()
        for _ in range(2):
            done = csi("NodeExpandVolume", volume_id=pod.volume_id, volume_path=pod.target,
                       staging_target_path=pod.staging, capacity_range=csi.size(mib), volume_capability=pod.capability)
            assert done.capacity_bytes == mib * MIB, done
        after = csi("NodeGetVolumeStats", volume_id=pod.volume_id, volume_path=pod.target).usage[0].total
        assert after > before, (pod.name, before, after)
    # Stage once more after all pods have gone.
    files.unpublish()
    files.unstage()
    files.stage()
    files.publish()
    assert read(files.file("a")) == b"first" * 1000


def after_death(known):
    files, other, block = pods(known)
    attach = os.environ.get("ATTACH", "fuse")
    if attach == "fuse":
        assert reasons(files) == ["ProcessDied"], reasons(files)
    # The driver starts another process for an ublk device, and no process of the kernel's host can die.
    end = time.monotonic() + (60 if attach == "ublk" else 0)
    while attach != "fuse" and reasons(files):
        assert time.monotonic() < end, reasons(files)
        time.sleep(0.5)
    for pod in [files, other, block]:
        pod.unpublish()
        # Kubernetes does not stage again for a new pod.
        if pod is files:
            pod.stage()
        pod.publish()
    assert reasons(files) == [], reasons(files)
    assert read(files.file("a")) == b"first" * 1000 and read(other.file("a")) == b"other" * 1000
    assert raw_read(block.target, 4096, 300) == b"raw" * 100
    write(files.file("b"), b"second")


def end(known):
    files, other, block = pods(known)
    assert read(files.file("b")) == b"second"
    write(files.file("c"), b"third")
    files.down(node)
    # Snapshots and copies.
    members = {"source_volume_id": files.volume_id, "name": "snapshot-1"}
    snapshot = csi.until("CreateSnapshot", **members).snapshot
    assert csi("CreateSnapshot", **members).snapshot == snapshot and snapshot.ready_to_use
    assert snapshot.creation_time.seconds > 1_700_000_000, snapshot
    listed = csi("ListSnapshots", source_volume_id=files.volume_id).entries
    assert [entry.snapshot for entry in listed] == [snapshot], listed
    content = csi.pb.VolumeContentSource
    of_snapshot = content(snapshot=content.SnapshotSource(snapshot_id=snapshot.snapshot_id))
    of_volume = content(volume=content.VolumeSource(volume_id=files.volume_id))
    restored = csi.create("pvc-restored", 256, source=of_snapshot)
    thin = csi.create("pvc-copy", 0, source=of_volume, parameters={"provisioning": "thin"})
    assert thin.capacity_bytes == 96 * MIB, thin
    assert csi.create("pvc-copy", 0, source=of_volume, parameters={"provisioning": "thin"}).volume_id == thin.volume_id
    csi.refused("ALREADY_EXISTS", "CreateVolume", name="pvc-copy", volume_capabilities=[csi.capability()],
                volume_content_source=of_snapshot)
    for volume in [restored, thin]:
        copy = Pod(csi, volume.volume_id, folder, "copy")
        copy.up(node)
        assert read(copy.file("c")) == b"third"
        total = csi("NodeGetVolumeStats", volume_id=copy.volume_id, volume_path=copy.target).usage[0].total
        assert total > volume.capacity_bytes * 3 // 4 or not can_grow_ext4, "the file system has all of the copy"
        copy.down(node)
    for pod in [other, block]:
        pod.down(node)
    csi("DeleteSnapshot", snapshot_id=snapshot.snapshot_id)
    for volume in [files.volume_id, other.volume_id, block.volume_id, restored.volume_id, thin.volume_id]:
        for _ in range(2):
            csi("DeleteVolume", volume_id=volume)
    assert not csi("ListVolumes").entries and not csi("ListSnapshots").entries


if phase == "first":
    first()
else:
    with open(notes, encoding="utf-8") as noted:
        {"again": again, "after_death": after_death, "end": end}[phase](json.load(noted))
