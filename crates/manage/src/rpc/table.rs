//! SPDK's methods of a manager, and resizing by namespace.

use super::caller::{CallerAccess, MethodOutcome, MethodTable};
use super::error::{Rpc, RpcError};
use super::manager::Manager;
use super::message::MethodParams;
use super::methods;
use crate::bursts::Bursts;
use crate::model::DeviceKind;
use std::time::Instant;

impl Manager {
    /// Resizes the device of a namespace, to `bytes` or to the size of its file.
    ///
    /// # Errors
    /// The namespace does not exist, or cannot have that size.
    pub fn resize_namespace(&self, (nqn, nsid): (&str, u32), bytes: Option<u64>) -> Rpc<()> {
        let model = self.model();
        let device = model.claims().find(|(place, _)| *place == (nqn, nsid)).map(|(_, name)| name);
        let device = device.and_then(|name| model.device(name)).cloned();
        let device =
            device.ok_or_else(|| RpcError::params(format!("{nqn} has no namespace {nsid}")))?;
        if matches!(device.kind, DeviceKind::Volume(_)) {
            let volume = device.location();
            let hint = format!("it is the volume {volume}: `ctl volume resize {volume} SIZE`");
            return Err(RpcError::invalid(hint));
        }
        methods::resize(&self.session(CallerAccess::Owner), &device, bytes).map(drop)
    }
}

impl MethodTable for Manager {
    fn names(&self) -> Vec<&'static str> {
        methods::all().map(|method| method.name).chain(["rpc_get_methods"]).collect()
    }

    fn run(
        &self,
        name: &str,
        params: MethodParams<'_>,
        access: CallerAccess,
    ) -> Option<MethodOutcome> {
        let method = methods::find(name)?;
        let began = Instant::now();
        let result = (method.run)(&self.session(access), params);
        let code = result.as_ref().map_or_else(|error| error.code, |_| 0);
        self.calls.count(method.name, code, began.elapsed());
        Some(MethodOutcome { name: method.name, changes: method.changes, result })
    }

    fn bursts(&self) -> &Bursts {
        &self.bursts
    }
}
