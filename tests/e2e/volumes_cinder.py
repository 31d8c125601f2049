"""Cinder's SPDK volume and target drivers, as they are: a volume's whole life, and what hosts read of it.

volumes_cinder.py ROADTRAIN RPC_PORT TARGET_PORT FOLDER, user and password "cinder" and "secret".
"""

import subprocess
import sys
import time
from unittest.mock import MagicMock

from oslo_config import cfg

from cinder.volume import configuration, driver
from cinder.volume.drivers import spdk
from cinder.volume.targets import spdknvmf

roadtrain, rpc_port, port, folder = sys.argv[1:]
GROUP = configuration.SHARED_CONF_GROUP


class Thing(dict):
    """What Cinder has of a volume or snapshot: members are attributes, too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def volume(number, size):
    uuid = f"00000000-0000-4000-8000-00000000000{number}"
    return Thing(id=uuid, name=f"volume-{uuid}", size=size, provider_location=None, provider_auth=None)


def start():
    cfg.CONF([], project="cinder")
    options = driver.volume_opts + spdknvmf.spdk_opts
    conf = configuration.Configuration(options, config_group=GROUP)
    for name, value in {
        "target_helper": "spdk-nvmeof", "target_protocol": "nvmet_tcp", "target_ip_address": "127.0.0.1",
        "target_port": int(port), "target_prefix": "nqn.2016-06.io.spdk", "spdk_rpc_ip": "127.0.0.1",
        "spdk_rpc_port": int(rpc_port), "spdk_rpc_username": "cinder", "spdk_rpc_password": "secret",
    }.items():
        cfg.CONF.set_override(name, value, group=GROUP)
    cinder = spdk.SPDKDriver(configuration=conf, db=MagicMock())
    cinder.do_setup(None)
    cinder.check_for_setup_error()
    return cinder


class Attached:
    """A volume as a host has it, at an NBD socket."""

    def __init__(self, cinder, which):
        exported = cinder.create_export(None, which, None)
        again = cinder.create_export(None, which, None)
        assert exported == again, (exported, again)
        self.cinder = cinder
        self.which = Thing(which, **exported)
        data = cinder.initialize_connection(self.which, {"nqn": "nqn.2026-11.test:host"})["data"]
        assert int(data["ns_id"]) == 10, data
        address, data_port = data["target_portal"], data["target_port"]
        self.socket = f"{folder}/nbd.sock"
        self.process = subprocess.Popen(
            [roadtrain, "attach", "-a", address, "-s", str(data_port), "-n", data["nqn"],
             "--nsid", str(data["ns_id"]), "--as", f"nbd:unix:{self.socket}"], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("ready"), line

    def io(self, *commands):
        uri = f"nbd+unix:///?socket={self.socket}"
        arguments = [part for command in commands for part in ("-c", command)]
        done = subprocess.run(["qemu-io", "-f", "raw", *arguments, uri], capture_output=True, text=True)
        output = done.stdout + done.stderr
        assert done.returncode == 0 and "failed" not in output, output

    def size(self):
        uri = f"nbd+unix:///?socket={self.socket}"
        return int(subprocess.run(["nbdinfo", "--size", uri], check=True, capture_output=True, text=True).stdout)

    def detach(self):
        self.process.terminate()
        self.process.wait(timeout=20)

    def end(self):
        self.detach()
        self.cinder.remove_export(None, self.which)


def free(cinder):
    cinder._update_volume_stats()
    return [(pool["pool_name"], pool["free_capacity_gb"], pool["total_capacity_gb"]) for pool in cinder._stats["pools"]]


cinder = start()
before = free(cinder)
assert [pool[0] for pool in before] == ["vols"], before

first = volume(1, 1)
cinder.create_volume(first)
host = Attached(cinder, first)
host.io("write -P 0x11 0 1M", "write -P 0x22 512M 64k", "flush")
cinder.extend_volume(first, 2)
first["size"] = 2
for _ in range(100):
    if host.size() == 2 << 30:
        break
    time.sleep(0.1)
assert host.size() == 2 << 30, "the host does not see that it is larger"
host.io("write -P 0x33 1536M 64k", "flush")
# A copy is not made of what may move: where extents cannot be shared the host goes first.
shares = sys.stdin.readline().strip() == "shares"
if not shares:
    host.end()

snapshot = Thing(id="s", name="snapshot-1", volume=first, volume_name=first.name, volume_size=2)
cinder.create_snapshot(snapshot)
if shares:
    host.io("write -P 0x44 0 1M", "flush")
    host.end()
else:
    host = Attached(cinder, first)
    host.io("write -P 0x44 0 1M", "flush")
    host.end()

second = volume(2, 3)
cinder.create_volume_from_snapshot(second, snapshot)
host = Attached(cinder, second)
assert host.size() == 3 << 30
host.io("read -P 0x11 0 1M", "read -P 0x22 512M 64k", "read -P 0x33 1536M 64k", "read -P 0 2560M 64k",
        "write -P 0x55 0 64k")
host.end()

third = volume(3, 2)
cinder.create_cloned_volume(third, first)
host = Attached(cinder, third)
host.io("read -P 0x44 0 1M", "read -P 0x33 1536M 64k")
host.end()

host = Attached(cinder, first)
host.io("read -P 0x44 0 1M")
host.end()
cinder.delete_snapshot(snapshot)
for one in [first, second, third]:
    cinder.delete_volume(one)
# What is deleted is given back to the file system in the background.
for _ in range(300):
    if free(cinder) == before:
        break
    time.sleep(0.1)
now = free(cinder)
assert now == before, (now, before)
assert cinder._rpc_call("bdev_get_bdevs") == []
assert len(cinder._rpc_call("nvmf_get_subsystems")) == 1
