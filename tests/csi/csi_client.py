"""Calls of the CSI driver by gRPC; stubs are generated from the driver's csi.proto."""

import importlib
import os
import sys
import tempfile
import time

import grpc
from grpc_tools import protoc

MIB = 1 << 20
# What a caller repeats: the driver, the target or the other call is away for a moment.
AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED,
         grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}


def stubs(folder):
    out = tempfile.mkdtemp()
    include = os.path.join(os.path.dirname(protoc.__file__), "_proto")
    done = protoc.main(["protoc", f"-I{folder}", f"-I{include}", f"--python_out={out}", f"--grpc_python_out={out}",
                        os.path.join(folder, "csi.proto")])
    assert done == 0, "csi.proto is not compiled"
    sys.path.insert(0, out)
    return importlib.import_module("csi_pb2"), importlib.import_module("csi_pb2_grpc")


class Refused(Exception):
    def __init__(self, error):
        self.code, self.text = error.code(), error.details()
        super().__init__(f"{self.code.name}: {self.text}")


class Csi:
    """The three services at one socket."""

    def __init__(self, socket, folder):
        self.pb, grpc_module = stubs(folder)
        # Its own authority would be the path, with characters that no authority has.
        options = [("grpc.default_authority", "localhost"), ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.min_reconnect_backoff_ms", 10_000),
                   ("grpc.max_reconnect_backoff_ms", 200)]
        channel = grpc.insecure_channel(f"unix:{socket}", options=options)
        self.services = [grpc_module.IdentityStub(channel), grpc_module.ControllerStub(channel),
                         grpc_module.NodeStub(channel)]

    def __call__(self, method, timeout=60, **members):
        stub = next(getattr(service, method) for service in self.services if hasattr(service, method))
        try:
            return stub(getattr(self.pb, f"{method}Request")(**members), timeout=timeout)
        except grpc.RpcError as error:
            raise Refused(error) from None

    def until(self, method, patience=120, also=(), **members):
        """Calls again while the answer says that it may be done later."""
        end = time.monotonic() + patience
        while True:
            try:
                return self(method, **members)
            except Refused as refused:
                if refused.code not in AGAIN | set(also) or time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def refused(self, code, method, **members):
        try:
            self(method, **members)
        except Refused as refused:
            assert refused.code == getattr(grpc.StatusCode, code), (method, refused)
            return refused.text
        raise AssertionError(f"{method} is not refused with {code}")

    def capability(self, block=False, mode="SINGLE_NODE_WRITER", fs_type="", flags=()):
        kind = self.pb.VolumeCapability
        access = kind.AccessMode(mode=kind.AccessMode.Mode.Value(mode))
        if block:
            return kind(block=kind.BlockVolume(), access_mode=access)
        return kind(mount=kind.MountVolume(fs_type=fs_type, mount_flags=flags), access_mode=access)

    def size(self, mib):
        return self.pb.CapacityRange(required_bytes=mib * MIB)

    def create(self, name, mib=64, capability=None, source=None, **members):
        reply = self.until("CreateVolume", name=name, capacity_range=self.size(mib) if mib else None,
                           volume_capabilities=[capability or self.capability()], volume_content_source=source,
                           **members)
        return reply.volume


class Pod:
    """A volume of a pod on this node, brought there as kubelet does it."""

    def __init__(self, csi, volume_id, folder, name, capability=None, context=None, secrets=None, readonly=False):
        self.csi, self.volume_id, self.name = csi, volume_id, name
        self.capability = capability or csi.capability()
        self.staging = os.path.join(folder, "plugins", name, "globalmount")
        self.target = os.path.join(folder, "pods", name, "mount")
        self.context, self.secrets, self.readonly = context or {}, secrets or {}, readonly
        self.published = None

    def attach(self, node):
        self.published = self.csi.until("ControllerPublishVolume", volume_id=self.volume_id, node_id=node,
                                        volume_capability=self.capability, volume_context=self.context,
                                        secrets=self.secrets).publish_context

    def stage(self):
        os.makedirs(self.staging, exist_ok=True)
        self.csi.until("NodeStageVolume", volume_id=self.volume_id, publish_context=self.published,
                       staging_target_path=self.staging, volume_capability=self.capability,
                       volume_context=self.context, secrets=self.secrets)

    def publish(self):
        # kubelet makes the folder above the target only.
        os.makedirs(os.path.dirname(self.target), exist_ok=True)
        self.csi.until("NodePublishVolume", volume_id=self.volume_id, publish_context=self.published,
                       staging_target_path=self.staging, target_path=self.target, volume_capability=self.capability,
                       volume_context=self.context, readonly=self.readonly)

    def unpublish(self):
        self.csi.until("NodeUnpublishVolume", volume_id=self.volume_id, target_path=self.target)
        assert not os.path.lexists(self.target), self.target

    def unstage(self):
        self.csi.until("NodeUnstageVolume", volume_id=self.volume_id, staging_target_path=self.staging)

    def detach(self, node):
        self.csi.until("ControllerUnpublishVolume", volume_id=self.volume_id, node_id=node)

    def up(self, node):
        self.attach(node)
        self.stage()
        self.publish()

    def down(self, node):
        self.unpublish()
        self.unstage()
        self.detach(node)

    def file(self, name):
        return os.path.join(self.target, name)


def write(path, content):
    """Writes a file that survives any process."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path):
    with open(path, "rb") as file:
        return file.read()
