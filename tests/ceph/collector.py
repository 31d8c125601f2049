"""What the collector of Ceph's own gateway (ceph-nvmeof) makes of a target of ours: collector.py SOCKET ADDRESS:PORT.

The collector is unmodified. Around it is what its gateway would be: it passes on what RPC says, by the same definitions
(pb2) as the gateway does. Prints what the collector would tell Prometheus. ADDRESS:PORT is our own metrics address,
whose text has to be one that Prometheus' parser for Python takes."""

import logging
import sys
import threading
import urllib.request

import spdk.rpc as rpc
from google.protobuf.json_format import ParseDict
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from control import prometheus
from control.proto import gateway_pb2 as pb2


class Gateway:
    """The calls of the collector to its gateway."""

    def __init__(self, client):
        self.client = client
        self.rpc_lock = threading.Lock()

    def get_gateway_info(self, _):
        return pb2.gateway_info(name="ours", version="1", spdk_version="25.05", addr="127.0.0.1", port="5500")

    def get_subsystems(self, _, __):
        said = {"subsystems": rpc.nvmf.nvmf_get_subsystems(self.client)}
        return ParseDict(said, pb2.subsystems_info(), ignore_unknown_fields=True)

    def list_subsystems(self, _):
        nqns = [one["nqn"] for one in rpc.nvmf.nvmf_get_subsystems(self.client)]
        return pb2.subsystems_info_cli(status=0, subsystems=[pb2.subsystem_cli(nqn=nqn, enable_ha=True) for nqn in nqns])

    def list_connections(self, asked):
        queues = rpc.nvmf.nvmf_subsystem_get_qpairs(self.client, nqn=asked.subsystem)
        connections = []
        for controller in rpc.nvmf.nvmf_subsystem_get_controllers(self.client, nqn=asked.subsystem):
            admin = next(q for q in queues if q["cntlid"] == controller["cntlid"] and q["qid"] == 0)
            at = admin["listen_address"]
            connections.append(pb2.connection(nqn=controller["hostnqn"], connected=True, traddr=at["traddr"],
                                              trsvcid=int(at["trsvcid"]), qpairs_count=controller["num_io_qpairs"]))
        return pb2.connections_info(status=0, connections=connections)


class Config:
    """The gateway's configuration: all as it is by default."""

    def get_with_default(self, _, __, default):
        return default

    getint_with_default = get_with_default


def main():
    socket, metrics = sys.argv[1:]
    client = rpc.client.JSONRPCClient(socket)
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR)
    prometheus.logger = logging.getLogger()
    registry = CollectorRegistry()
    registry.register(prometheus.NVMeOFCollector(client, Config(), Gateway(client)))
    sys.stdout.write(generate_latest(registry).decode())
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert sum(len(family.samples) for family in families) > 100, "the page says little"


main()
