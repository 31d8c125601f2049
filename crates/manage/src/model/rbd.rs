//! Ceph clusters in the model.

use super::{DeviceKind, ManagedModel, RbdCluster};

impl ManagedModel {
    /// Returns the cluster with that name.
    #[must_use]
    pub fn rbd_cluster(&self, name: &str) -> Option<&RbdCluster> {
        self.rbd_clusters.iter().find(|cluster| cluster.name == name)
    }

    /// Returns a device that is an image of the cluster with that name.
    #[must_use]
    pub fn device_of_cluster(&self, name: &str) -> Option<&str> {
        let is_of_it = |kind: &DeviceKind| match kind {
            DeviceKind::Rbd(image) => image.cluster.as_deref() == Some(name),
            _ => false,
        };
        let device = self.devices.iter().find(|device| is_of_it(&device.kind))?;
        Some(&device.name)
    }
}
