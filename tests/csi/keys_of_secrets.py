"""A key in Secrets: the controller gives it to the target, the node to the attachment.

keys_of_secrets.py SOCKET PROTO FOLDER KIND KEY KEY-DIR: KIND is dhchap-key or tls-key."""

import os
import sys

from csi_client import Csi, Pod, read, write

socket, proto, folder, kind, key, key_dir = sys.argv[1:7]
csi = Csi(socket, proto)
node = csi("NodeGetInfo").node_id
volume = csi.create("pvc-secret")
pod = Pod(csi, volume.volume_id, folder, "pod", secrets={kind: key})
pod.attach(node)
pod.attach(node)
assert len(os.listdir(key_dir)) == 1, os.listdir(key_dir)
bare = Pod(csi, volume.volume_id, folder, "pod")
bare.published = pod.published
os.makedirs(bare.staging, exist_ok=True)
csi.refused("UNAVAILABLE", "NodeStageVolume", volume_id=volume.volume_id, publish_context=bare.published,
            staging_target_path=bare.staging, volume_capability=bare.capability)
pod.stage()
pod.publish()
write(pod.file("a"), b"secret")
assert read(pod.file("a")) == b"secret"
pod.down(node)
csi("DeleteVolume", volume_id=volume.volume_id)
