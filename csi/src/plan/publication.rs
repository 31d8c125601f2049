//! Steps that let a node use a volume, and that end that.

use crate::target::{NodeKeyNames, VolumeSubsystem};

/// Node that is to use a volume.
#[derive(Clone, Debug)]
pub(crate) struct DesiredPublication<'a> {
    /// UUID of the volume, which is the name of its device.
    pub(crate) uuid: &'a str,
    /// Host NQN of the node.
    pub(crate) host: &'a str,
    /// Addresses of the target.
    pub(crate) addresses: &'a [String],
    /// Keys of the node.
    pub(crate) keys: &'a NodeKeyNames,
    /// True if other nodes may use it at the same time.
    pub(crate) is_shared: bool,
}

/// Next step towards a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublishStep {
    /// Create the subsystem.
    CreateSubsystem,
    /// Add the namespace.
    AddNamespace,
    /// Let hosts reach it at this address.
    AddListener(String),
    /// Let the node connect: the last step.
    AddHost,
    /// Remove the node, which has other keys.
    ReplaceHost,
    /// The node can use it.
    Done,
}

/// Returns the next step towards `desired`, where the volume has this subsystem.
///
/// # Errors
/// NQN of another node that uses the volume, which nodes may not share.
pub(crate) fn next_publish_step(
    subsystem: Option<&VolumeSubsystem>,
    desired: &DesiredPublication<'_>,
) -> Result<PublishStep, String> {
    let Some(subsystem) = subsystem else { return Ok(PublishStep::CreateSubsystem) };
    let other = subsystem.hosts.iter().find(|host| host.nqn != desired.host);
    if let Some(other) = other.filter(|_| !desired.is_shared) {
        return Err(other.nqn.clone());
    }
    if !subsystem.namespaces.iter().any(|namespace| namespace.bdev_name == desired.uuid) {
        return Ok(PublishStep::AddNamespace);
    }
    let has_listener = |address: &String| {
        let (traddr, trsvcid) = crate::settings::split_address(address);
        let mut listeners = subsystem.listen_addresses.iter();
        listeners.any(|listener| listener.traddr == traddr && listener.trsvcid == trsvcid)
    };
    if let Some(address) = desired.addresses.iter().find(|address| !has_listener(address)) {
        return Ok(PublishStep::AddListener(address.clone()));
    }
    Ok(match subsystem.hosts.iter().find(|host| host.nqn == desired.host) {
        None => PublishStep::AddHost,
        Some(host) if host.dhchap_key != desired.keys.dhchap => PublishStep::ReplaceHost,
        Some(_) => PublishStep::Done,
    })
}

/// Next step towards the end of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnpublishStep {
    /// Let the node connect no more.
    RemoveHost,
    /// Delete the subsystem: no node uses it.
    DeleteSubsystem,
    /// The node cannot use it.
    Done,
}

/// Returns the next step after which the node `host`, or no node, can use the volume with this subsystem.
pub(crate) fn next_unpublish_step(
    subsystem: Option<&VolumeSubsystem>,
    host: Option<&str>,
) -> UnpublishStep {
    let Some(subsystem) = subsystem else { return UnpublishStep::Done };
    match host {
        None => UnpublishStep::DeleteSubsystem,
        Some(_) if subsystem.hosts.is_empty() => UnpublishStep::DeleteSubsystem,
        Some(host) if subsystem.hosts.iter().any(|allowed| allowed.nqn == host) => {
            UnpublishStep::RemoveHost
        }
        Some(_) => UnpublishStep::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{AllowedHost, ListenAddress, SubsystemNamespace};

    fn apply(
        subsystem: &mut Option<VolumeSubsystem>,
        step: &PublishStep,
        desired: &DesiredPublication<'_>,
    ) {
        if *step == PublishStep::CreateSubsystem {
            *subsystem = Some(VolumeSubsystem::default());
        }
        let subsystem = subsystem.as_mut().unwrap();
        match step {
            PublishStep::CreateSubsystem | PublishStep::Done => {}
            PublishStep::AddNamespace => subsystem
                .namespaces
                .push(SubsystemNamespace { bdev_name: desired.uuid.into(), nsid: 1 }),
            PublishStep::AddListener(address) => {
                let (traddr, trsvcid) = crate::settings::split_address(address);
                subsystem
                    .listen_addresses
                    .push(ListenAddress { traddr: traddr.into(), trsvcid: trsvcid.into() });
            }
            PublishStep::AddHost => subsystem.hosts.push(AllowedHost {
                nqn: desired.host.into(),
                dhchap_key: desired.keys.dhchap.clone(),
            }),
            PublishStep::ReplaceHost => subsystem.hosts.retain(|host| host.nqn != desired.host),
        }
    }

    fn publish(
        subsystem: &mut Option<VolumeSubsystem>,
        desired: &DesiredPublication<'_>,
    ) -> Result<Vec<PublishStep>, String> {
        let mut steps = Vec::new();
        loop {
            let step = next_publish_step(subsystem.as_ref(), desired)?;
            apply(subsystem, &step, desired);
            steps.push(step.clone());
            if step == PublishStep::Done {
                return Ok(steps);
            }
            assert!(steps.len() < 10, "no end: {steps:?}");
        }
    }

    #[test]
    fn publishes_and_ends_it() {
        let addresses = ["192.0.2.7:4420".to_owned(), "[2001:db8::7]:4420".to_owned()];
        let keys = NodeKeyNames::default();
        let desired = DesiredPublication {
            uuid: "u",
            host: "nqn.a:1",
            addresses: &addresses,
            keys: &keys,
            is_shared: false,
        };
        let mut subsystem = None;
        let steps = publish(&mut subsystem, &desired).unwrap();
        assert_eq!(steps.len(), 6, "{steps:?}");
        assert_eq!(steps[4], PublishStep::AddHost, "a host connects only when all is there");
        assert_eq!(publish(&mut subsystem, &desired), Ok(vec![PublishStep::Done]));
        let second = DesiredPublication { host: "nqn.a:2", ..desired.clone() };
        assert_eq!(publish(&mut subsystem, &second), Err("nqn.a:1".into()));
        let second = DesiredPublication { is_shared: true, ..second };
        publish(&mut subsystem, &second).unwrap();
        let other = NodeKeyNames { dhchap: Some("k".into()), ..NodeKeyNames::default() };
        let keyed = DesiredPublication { keys: &other, ..second };
        let steps = [PublishStep::ReplaceHost, PublishStep::AddHost, PublishStep::Done];
        assert_eq!(publish(&mut subsystem, &keyed).unwrap(), steps);

        let step = |subsystem: &Option<VolumeSubsystem>, host| {
            next_unpublish_step(subsystem.as_ref(), host)
        };
        assert_eq!(step(&subsystem, Some("nqn.a:3")), UnpublishStep::Done);
        assert_eq!(step(&subsystem, Some("nqn.a:1")), UnpublishStep::RemoveHost);
        subsystem.as_mut().unwrap().hosts.clear();
        assert_eq!(step(&subsystem, Some("nqn.a:1")), UnpublishStep::DeleteSubsystem);
        assert_eq!(step(&subsystem, None), UnpublishStep::DeleteSubsystem);
        assert_eq!(step(&None, None), UnpublishStep::Done);
    }
}
