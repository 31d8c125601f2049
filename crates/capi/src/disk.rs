//! A namespace of a connected controller.

use crate::border::{text, CallError, CallResult};
use crate::types::{roadtrain_info, roadtrain_options, ROADTRAIN_DDGST, ROADTRAIN_HDGST};
use roadtrain_host_engine::identity::HostIdentity;
use roadtrain_host_engine::{HostClient, HostConfig, HostControlError, NamespaceInfo};
use roadtrain_system::platform::Cpus;
use roadtrain_wire::status::Status;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// Default port of a target.
const PORT: u16 = 4420;
/// Most I/O queues of a disk.
const LANES_MAX: u32 = 128;

pub(crate) struct DiskHandle(pub(crate) Arc<OpenDisk>);

/// Connection that rings share.
pub(crate) struct OpenDisk {
    pub(crate) client: HostClient,
    pub(crate) nsid: u32,
}

impl DiskHandle {
    /// # Safety
    /// The options' strings end with NUL.
    pub(crate) unsafe fn open(options: &roadtrain_options) -> CallResult<DiskHandle> {
        // SAFETY: guaranteed by the caller.
        let config = unsafe { config(options) }?;
        let client = HostClient::connect(config).map_err(|error| refusal(&error))?;
        let namespaces = client.view().info().namespaces;
        let first = namespaces.first().map(|namespace| namespace.nsid);
        let nsid = if options.nsid == 0 { first } else { Some(options.nsid) };
        let nsid = nsid.filter(|nsid| client.view().namespace(*nsid).is_some());
        let nsid = nsid
            .ok_or_else(|| CallError::new(libc::ENODEV, "the subsystem has no such namespace"))?;
        Ok(DiskHandle(Arc::new(OpenDisk { client, nsid })))
    }

    /// # Errors
    /// Fails if a ring uses it.
    pub(crate) fn check_unused(&self) -> CallResult {
        match Arc::strong_count(&self.0) {
            1 => Ok(()),
            _ => Err(CallError::new(libc::EBUSY, "free the disk's rings first")),
        }
    }

    pub(crate) fn info(&self) -> CallResult<roadtrain_info> {
        let namespace = self.0.namespace()?;
        Ok(roadtrain_info {
            size: std::mem::size_of::<roadtrain_info>(),
            blocks: namespace.blocks,
            block_bytes: namespace.block_bytes,
            transfer_bytes_max: self.0.client.view().info().transfer_bytes_max,
            nsid: namespace.nsid,
            read_only: u32::from(namespace.read_only),
        })
    }
}

impl OpenDisk {
    /// # Errors
    /// Fails if the namespace is gone.
    pub(crate) fn namespace(&self) -> CallResult<NamespaceInfo> {
        let namespace = self.client.view().namespace(self.nsid);
        namespace.ok_or_else(|| CallError::new(libc::ENODEV, "the namespace is gone"))
    }
}

/// # Safety
/// The options' strings end with NUL.
unsafe fn config(options: &roadtrain_options) -> CallResult<HostConfig> {
    // SAFETY: guaranteed by the caller.
    let (addresses, nqn, host, cores) = unsafe {
        (
            text(options.addresses, "addresses")?,
            text(options.subsystem_nqn, "subsystem_nqn")?,
            text(options.host_nqn, "host_nqn")?,
            text(options.cores, "cores")?,
        )
    };
    let mut addresses = addresses.unwrap_or_default().split(',').map(address);
    let first =
        addresses.next().unwrap_or_else(|| Err(CallError::invalid("addresses is empty")))?;
    let nqn = nqn.ok_or_else(|| CallError::invalid("subsystem_nqn is NULL"))?;
    let identity = HostIdentity::choose(host, None).map_err(CallError::invalid)?;
    let mut config = HostConfig::new(first, nqn, &identity.nqn, identity.id);
    for more in addresses {
        config.more_addresses.push(more?.into());
    }
    config.cores = Cpus::parse(cores.unwrap_or_default()).iter().collect();
    if cores.is_some_and(|cores| !cores.trim().is_empty()) && config.cores.is_empty() {
        return Err(CallError::invalid("cores is no list such as 0,2-3"));
    }
    let within = |name: &str, value: u32, most: u32| match value <= most {
        true => Ok(value),
        false => Err(CallError::invalid(format!("{name} is more than {most}"))),
    };
    config.lanes = match within("lanes", options.lanes, LANES_MAX)? {
        0 => u32::try_from(config.cores.len()).unwrap_or(1).clamp(1, LANES_MAX),
        lanes => lanes,
    };
    match within("queue_entries", options.queue_entries, 4096)? {
        0 => {}
        1 => return Err(CallError::invalid("queue_entries is less than 2")),
        entries => config.queue_entries = entries as u16,
    }
    if options.flags & !(ROADTRAIN_HDGST | ROADTRAIN_DDGST) != 0 {
        return Err(CallError::invalid(format!(
            "flags has bits that mean nothing: {:#x}",
            options.flags
        )));
    }
    config.digests.header = options.flags & ROADTRAIN_HDGST != 0;
    config.digests.data = options.flags & ROADTRAIN_DDGST != 0;
    if options.keep_alive_ms != 0 {
        config.keep_alive = Duration::from_millis(options.keep_alive_ms.into());
    }
    match options.controller_loss_ms {
        0 => {}
        u32::MAX => config.controller_loss_timeout = None,
        ms => config.controller_loss_timeout = Some(Duration::from_millis(ms.into())),
    }
    Ok(config)
}

/// Parses `ADDRESS:PORT`, or an address alone.
fn address(text: &str) -> CallResult<SocketAddr> {
    let text = text.trim();
    if let Ok(ip) = text.trim_matches(['[', ']']).parse() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let found =
        if text.contains(':') { text.to_socket_addrs() } else { (text, PORT).to_socket_addrs() };
    let found = found.map_err(|error| CallError::invalid(format!("address '{text}': {error}")))?;
    found
        .into_iter()
        .next()
        .ok_or_else(|| CallError::invalid(format!("address '{text}': no such name")))
}

fn refusal(error: &HostControlError) -> CallError {
    let text = error.to_string();
    const NOT_ALLOWED: [Status; 2] =
        [Status::CONNECT_INVALID_HOST, Status::AUTHENTICATION_REQUIRED];
    let is = |status: Status| NOT_ALLOWED.iter().any(|one| status.is(*one));
    let errno = match error {
        HostControlError::Authentication { .. } => libc::EACCES,
        HostControlError::Refused { status, .. } if is(*status) => libc::EACCES,
        HostControlError::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::ECONNREFUSED,
    };
    CallError::new(errno, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_or_the_usual_one() {
        for (text, wanted) in [
            ("192.0.2.7:4421", "192.0.2.7:4421"),
            (" 192.0.2.7", "192.0.2.7:4420"),
            ("[2001:db8::7]:1", "[2001:db8::7]:1"),
            ("2001:db8::7", "[2001:db8::7]:4420"),
            ("[2001:db8::7]", "[2001:db8::7]:4420"),
        ] {
            assert_eq!(address(text).unwrap(), wanted.parse().unwrap(), "{text}");
        }
        for text in ["", "192.0.2.7:x", "a b"] {
            assert_eq!(address(text).unwrap_err().errno, libc::EINVAL, "{text}");
        }
    }
}
