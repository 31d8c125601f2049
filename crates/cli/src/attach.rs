//! `roadtrain attach`: shows a remote namespace as a local block device until it is told to stop.

use crate::args::{AttachArgs, GlobalArgs};
use crate::failure::{Failure, Outcome};
use crate::query::no_namespace;
use crate::signals::{Signal, Signals};
use crate::{connect, logs, output};
use roadtrain_engine::host::{
    Controller, ControllerInfo, ControllerView, Front, LaneId, NamespaceInfo, ReactorInfo, Turn,
};
use roadtrain_front::nbd::{Export, ExportInfo, NbdAddress, NbdServer};
use roadtrain_wire::identify::{oncs, vwc};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// How often the namespace's size is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// `roadtrain attach`
pub(crate) fn run(args: &AttachArgs, global: &GlobalArgs) -> Outcome {
    let address: NbdAddress =
        args.front.parse().map_err(|e| Failure::usage(format!("--as {e}")))?;
    logs::start("info", global.verbose);
    let config = connect::config(&args.portal, &args.nqn, &args.connect)?;
    let config = connect::with_lanes(config, &args.lanes, &args.policy, args.wait);
    let signals = Signals::block()?;
    let mut fronts = Fronts { args, address: &address, bound: None };
    let controller = Controller::connect(config, |reactor, view| fronts.make(reactor, view))?;
    let bound = match fronts.bound {
        Some(Ok(bound)) => bound,
        Some(Err(failure)) => {
            controller.stop();
            return Err(failure);
        }
        None => return Err(Failure::failed("the controller has no reactor")),
    };
    output::line(&format!("ready {} {} nsid {}", bound.uri, args.nqn, args.nsid))?;
    until_stopped(&signals, controller.view(), &bound.export, args.nsid);
    info!("stopping");
    controller.stop();
    controller.join();
    Ok(())
}

/// Follows the namespace meanwhile: clients that come later see its new size.
fn until_stopped(signals: &Signals, view: &ControllerView, export: &Export, nsid: u32) {
    while signals.wait_for(LOOK) != Some(Signal::Stop) {
        export.update(view.namespace(nsid).map(|namespace| namespace.blocks));
    }
}

/// Hands a server to each reactor; they share one socket.
struct Fronts<'a> {
    args: &'a AttachArgs,
    address: &'a NbdAddress,
    bound: Option<Outcome<Bound>>,
}

struct Bound {
    /// One for each reactor that is not made yet.
    servers: Vec<NbdServer>,
    export: Arc<Export>,
    uri: String,
}

impl Fronts<'_> {
    fn make(&mut self, reactor: ReactorInfo, view: &ControllerView) -> Box<dyn Front + Send> {
        let (args, address) = (self.args, self.address);
        let bound = self.bound.get_or_insert_with(|| bind(args, address, &view.info()));
        match bound.as_mut().ok().and_then(|bound| bound.servers.pop()) {
            Some(server) => Box::new(server.with_lanes(reactor.lanes)),
            None => Box::new(Nothing),
        }
    }
}

fn bind(args: &AttachArgs, address: &NbdAddress, info: &ControllerInfo) -> Outcome<Bound> {
    let namespace = info.namespaces.iter().find(|namespace| namespace.nsid == args.nsid);
    let Some(namespace) = namespace else {
        return Err(Failure::failed(no_namespace(&args.nqn, args.nsid)));
    };
    let first = NbdServer::bind(address, export_info(args, namespace, info), LaneId(0))
        .map_err(|error| Failure::failed(format!("--as {address}: {}", advice(&error))))?;
    let cores = args.lanes.cores.as_ref().map_or(1, |cores| cores.0.len());
    let reactors = cores.clamp(1, info.io_queues.max(1) as usize);
    let buffers = usize::try_from(args.buffers).unwrap_or(usize::MAX) / reactors;
    let (export, uri) = (first.export(), first.address().uri());
    // Not one more than there are reactors: each is expected to serve its share of the clients.
    let mut servers: Vec<NbdServer> = (1..reactors).map(|_| first.for_lane(LaneId(0))).collect();
    servers.push(first);
    let servers = servers.into_iter().map(|s| s.with_buffer_bytes_max(buffers)).collect();
    Ok(Bound { servers, export, uri })
}

fn advice(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!("{error}: another server has it, choose another"),
        io::ErrorKind::NotFound => format!("{error}: does the directory exist?"),
        _ => error.to_string(),
    }
}

fn export_info(args: &AttachArgs, namespace: &NamespaceInfo, info: &ControllerInfo) -> ExportInfo {
    let has = |flag: u16| info.identify.oncs.get() & flag != 0;
    ExportInfo {
        name: format!("{}/{}", args.nqn, args.nsid),
        description: format!("namespace {} of {} at {}", args.nsid, args.nqn, args.portal.traddr),
        nsid: args.nsid,
        blocks: namespace.blocks,
        lba_bytes: namespace.block_bytes,
        max_transfer_bytes: info.transfer_bytes_max,
        read_only: namespace.read_only,
        flush: info.identify.vwc & vwc::PRESENT != 0,
        trim: has(oncs::DATASET_MANAGEMENT),
        write_zeroes: has(oncs::WRITE_ZEROES),
    }
}

/// A front that ends at once.
struct Nothing;

impl Front for Nothing {
    fn turn(&mut self, turn: &mut dyn Turn) {
        turn.stop();
    }
}
