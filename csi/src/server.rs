//! Sockets of the driver, and the services at them.

use crate::args::{Args, AttachMode};
use crate::controller::{ControllerService, segment};
use crate::identity::IdentityService;
use crate::locks::VolumeLocks;
use crate::metrics::{self, Metrics};
use crate::names;
use crate::node::NodeService;
use crate::node::attach::Attachments;
use crate::node::kernel::KernelHost;
use crate::proto::controller_server::ControllerServer;
use crate::proto::identity_server::IdentityServer;
use crate::proto::node_server::NodeServer;
use crate::settings;
use crate::target::Target;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

/// Pause between two searches for processes of attachments that have died.
const RECOVERY: Duration = Duration::from_secs(10);

/// Most time in which the child of a driver that was killed still has its socket.
const CHILD: Duration = Duration::from_secs(2);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Settings that cannot be used, or a socket that cannot be made.
pub(crate) async fn run(args: Args) -> Result<(), String> {
    let socket = socket_path(&args.endpoint)?;
    let metrics = Arc::new(Metrics::new());
    let settings = settings::targets(&args)?;
    let target = |(settings, place)| Target::new(settings, place, metrics.clone());
    let targets: Vec<Target> = settings.into_iter().map(target).collect();
    if targets.is_empty() && args.node_id.is_none() {
        return Err(
            "give --rpc or --targets for the controller service, --node-id for the node service"
                .into(),
        );
    }
    let controller =
        ControllerService::new(args.driver_name.clone(), targets.clone(), metrics.clone());
    let node =
        args.node_id.as_ref().map(|id| node_service(&args, id, &targets, &metrics)).transpose()?;
    if let Some(address) = args.metrics {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| format!("--metrics {address}: {error}"))?;
        tokio::spawn(metrics::serve(listener, metrics.clone(), Arc::new(controller.clone())));
    }
    if let Some(node) = &node {
        tokio::spawn(recover(node.clone()));
    }
    let listener = listen(&socket).await?;
    tracing::info!(socket = %socket.display(), controller = !targets.is_empty(), node = node.is_some(), "ready");
    let identity = IdentityService { driver_name: args.driver_name, targets: targets.clone() };
    let has_controller = !targets.is_empty();
    let served = Server::builder()
        .add_service(IdentityServer::new(identity))
        .add_optional_service(has_controller.then(|| ControllerServer::new(controller)))
        .add_optional_service(node.map(NodeServer::new))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), end())
        .await;
    let _ = std::fs::remove_file(&socket);
    served.map_err(|error| error.to_string())
}

fn node_service(
    args: &Args,
    id: &str,
    targets: &[Target],
    metrics: &Arc<Metrics>,
) -> Result<NodeService, String> {
    let mode = match args.attach {
        Some(mode) => mode,
        None => AttachMode::best()?,
    };
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut reached = args.reaches.clone();
    if reached.is_empty() {
        reached = targets.iter().map(|target| target.settings.name.clone()).collect();
    }
    if reached.is_empty() {
        reached.push(args.target_name.clone());
    }
    let node = names::node(id);
    if !names::is_node(&node) {
        return Err(format!("--node-id {id}: as a host NQN it is longer than 223 bytes"));
    }
    tracing::info!(node, attach = ?mode, "node");
    let attachments = Attachments {
        mode,
        node,
        roadtrain: words(&args.roadtrain),
        options: words(&args.attach_options),
        run_dir: args.run_dir.clone(),
        kernel: KernelHost::default(),
    };
    Ok(NodeService {
        attachments: Arc::new(attachments),
        segments: reached.iter().map(|name| segment(&args.driver_name, name)).collect(),
        max_volumes: args.max_volumes,
        locks: VolumeLocks::default(),
        metrics: metrics.clone(),
    })
}

/// Takes over the devices of attachments whose process has died, and counts attachments.
async fn recover(node: NodeService) {
    loop {
        match node.attachments.recover(&node.locks).await {
            Ok(states) => {
                for state in ["ready", "starting", "gone"] {
                    node.metrics.attachments(state, states.get(state).copied().unwrap_or(0));
                }
            }
            Err(failure) => tracing::debug!("{failure}"),
        }
        tokio::time::sleep(RECOVERY).await;
    }
}

async fn end() {
    let (Ok(mut term), Ok(mut int)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

/// Returns the path of an endpoint.
fn socket_path(endpoint: &str) -> Result<PathBuf, String> {
    let path = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"));
    let path = path.unwrap_or(endpoint);
    match path.starts_with('/') {
        true => Ok(path.into()),
        false => Err(format!("--endpoint {endpoint}: write unix:///PATH")),
    }
}

/// Listens at a path. A socket of a driver that was killed is replaced.
async fn listen(path: &Path) -> Result<UnixListener, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(format!("{} exists and is no socket", path.display()));
        }
        // A child of a driver that was killed may have the socket until it becomes another program.
        let end = Instant::now() + CHILD;
        while UnixStream::connect(path).await.is_ok() {
            if Instant::now() > end {
                return Err(format!("{}: another driver listens there", path.display()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    UnixListener::bind(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for endpoint in ["unix:///csi/csi.sock", "unix:/csi/csi.sock", "/csi/csi.sock"] {
            assert_eq!(socket_path(endpoint), Ok("/csi/csi.sock".into()), "{endpoint}");
        }
        for endpoint in ["tcp://127.0.0.1:1", "csi.sock", "unix://csi.sock"] {
            assert!(socket_path(endpoint).is_err(), "{endpoint}");
        }
    }

    #[tokio::test]
    async fn sockets_of_the_dead_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("csi.sock");
        let first = listen(&path).await.unwrap();
        assert!(listen(&path).await.unwrap_err().contains("another driver"));
        drop(first);
        listen(&path).await.unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(listen(&file).await.unwrap_err().contains("no socket"));
    }
}
