//! Ways to show a remote namespace as a local block device.
