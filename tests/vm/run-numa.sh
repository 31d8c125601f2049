# shellcheck shell=bash
# Our host and target on a machine with two NUMA nodes.

thorough+=(numa_threads_and_memory_on_the_node_of_the_network)

# Four processors, 512 MiB a node, and a second network interface on node 1.
NUMA='-object memory-backend-ram,id=m0,size=512M -numa node,nodeid=0,cpus=0-1,memdev=m0
    -object memory-backend-ram,id=m1,size=512M -numa node,nodeid=1,cpus=2-3,memdev=m1
    -device pxb-pcie,id=far,bus=pcie.0,bus_nr=64,numa_node=1
    -device pcie-root-port,id=slot1,bus=far,chassis=1
    -netdev user,id=net1,net=10.0.3.0/24 -device virtio-net-pci,netdev=net1,bus=slot1,romfile='

test_numa_threads_and_memory_on_the_node_of_the_network() {
    share_program
    "$here/vm.sh" run -c 4 -m 1024 -q "${NUMA//$'\n'/ }" -s "$work/share" "$here/guest-numa.sh"
}
