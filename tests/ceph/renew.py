"""Makes a test's cluster of one OSD as it was when it was new: renew.py CONF. Fails if the cluster does not work."""

import json
import sys

import rados
import rbd


def main():
    with rados.Rados(conffile=sys.argv[1], name="client.admin") as cluster:

        def command(send, prefix, **arguments):
            status, output, text = send(json.dumps({"prefix": prefix, **arguments}), b"")
            if status:
                raise SystemExit(f"{prefix} {arguments}: {status} {text or output}")

        def monitor(prefix, **arguments):
            command(cluster.mon_command, prefix, **arguments)

        def tell_monitor(prefix, **arguments):
            command(lambda text, data: cluster.mon_command(text, data, target="a"), prefix, **arguments)

        def tell_osd(prefix, **arguments):
            command(lambda text, data: cluster.osd_command(0, text, data), prefix, **arguments)

        tell_osd("injectfull", type="none", count=-1)
        tell_monitor("config unset", var="paxos_propose_interval")
        monitor("config rm", who="osd", name="osd_client_watch_timeout")
        monitor("auth rm", entity="client.gate")
        monitor("osd blocklist clear")
        for pool in cluster.list_pools():
            monitor("osd pool delete", pool=pool, pool2=pool, yes_i_really_really_mean_it=True)
        monitor("osd pool create", pool="rbd")
        cluster.wait_for_latest_osdmap()  # without it `rbd` is still the old pool
        with cluster.open_ioctx("rbd") as pool:
            rbd.RBD().pool_init(pool, False)  # it writes and reads, so I/O works


main()
