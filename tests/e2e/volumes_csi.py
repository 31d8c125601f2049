"""Requirements of spdk-csi: its calls in its order, the texts that it checks in messages, many at once, all space back."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from volumes_rpc import Refused, Rpc, refused

path, port = sys.argv[1], sys.argv[2]
local = threading.local()
pool = ThreadPoolExecutor(50)  # one for all that is called at once: each of its threads has a connection


def rpc(method, **params):
    if not hasattr(local, "rpc"):
        local.rpc = Rpc(path)
    return local.rpc(method, **params)


def free_mib():
    store = rpc("bdev_lvol_get_lvstores")[0]
    return store["free_clusters"] * store["cluster_size"] >> 20


def create(name):
    try:
        return rpc("bdev_get_bdevs", name=f"vols/{name}")[0]["name"]
    except Refused as error:
        assert "no such device" in error.message.lower(), error
    return rpc("bdev_lvol_create", lvol_name=name, size=64 << 20, lvs_name="vols", clear_method="none")


def is_published(nqn):
    try:
        listeners = rpc("nvmf_subsystem_get_listeners", nqn=nqn)
    except Refused as error:
        assert "invalid parameters" in error.message.lower(), error
        return False
    wanted = {"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port}
    return any(one["address"] == wanted for one in listeners)


def publish(uuid):
    nqn = f"nqn.2020-04.io.spdk.csi:uuid:{uuid}"
    assert rpc("bdev_get_bdevs", name=uuid)[0]["uuid"] == uuid
    if is_published(nqn):
        return
    try:
        rpc("nvmf_create_transport", trtype="TCP")
    except Refused as error:
        assert "already exists" in error.message.lower(), error
    rpc("nvmf_create_subsystem", nqn=nqn, allow_any_host=True, serial_number="spdkcsi-sn", model_number=uuid)
    rpc("nvmf_subsystem_add_ns", nqn=nqn, namespace={"bdev_name": uuid})
    address = {"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port}
    rpc("nvmf_subsystem_add_listener", nqn=nqn, listen_address=address)
    assert is_published(nqn)


def unpublish(uuid):
    nqn = f"nqn.2020-04.io.spdk.csi:uuid:{uuid}"
    rpc("bdev_get_bdevs", name=uuid)
    if not is_published(nqn):
        return
    own = next(one for one in rpc("nvmf_get_subsystems") if one["nqn"] == nqn)
    nsid = next(one["nsid"] for one in own["namespaces"] if one["bdev_name"] == uuid)
    rpc("nvmf_subsystem_remove_ns", nqn=nqn, nsid=nsid)
    rpc("nvmf_delete_subsystem", nqn=nqn)


def whole_life(number):
    uuid = create(f"pvc-{number}")
    assert create(f"pvc-{number}") == uuid, "made once"
    publish(uuid)
    publish(uuid)
    snapshot = rpc("bdev_lvol_snapshot", lvol_name=uuid, snapshot_name=f"snap-{number}")
    clone = rpc("bdev_lvol_clone", snapshot_name=snapshot, clone_name=f"clone-{number}")
    unpublish(uuid)
    unpublish(uuid)
    for one in [clone, snapshot, uuid]:
        rpc("bdev_lvol_delete", name=one)
        refused("no such device", rpc, "bdev_lvol_delete", name=one)


def outcomes(count, call, *args, **params):
    """How often a call that is made so often at once is done, and how it is refused else."""
    def one(_):
        try:
            rpc(call, *args, **params)
            return "done"
        except Refused as error:
            return error.message.lower()
    results = list(pool.map(one, range(count)))
    return results.count("done"), {result for result in results if result != "done"}


before = free_mib()
refused("no space left", rpc, "bdev_lvol_create", lvol_name="much", size=before + 4 << 20, lvs_name="vols")
refused("no such device", rpc, "bdev_get_bdevs", name="00000000-0000-4000-8000-000000000000")
refused("no such device", rpc, "bdev_lvol_create", lvol_name="a", size=1 << 20, lvs_name="nowhere")

done, others = outcomes(50, "bdev_lvol_create", lvol_name="same", size=64 << 20, lvs_name="vols")
assert done == 1 and all("file exists" in other for other in others), (done, others)
assert free_mib() == before - 64
done, others = outcomes(50, "bdev_lvol_snapshot", lvol_name="vols/same", snapshot_name="still")
assert done == 1 and all("file exists" in other for other in others), (done, others)
for name in ["vols/still", "vols/same"]:
    done, others = outcomes(50, "bdev_lvol_delete", name=name)
    assert done == 1 and all("no such device" in other for other in others), (done, others)
assert free_mib() == before

list(pool.map(whole_life, range(20)))
assert free_mib() == before, (free_mib(), before)
assert rpc("bdev_get_bdevs") == [] and len(rpc("nvmf_get_subsystems")) == 1
