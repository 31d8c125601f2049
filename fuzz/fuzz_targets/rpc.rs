//! A stream of JSON-RPC requests to a target without objects that refuses every change. The requests do not depend on
//! the pieces in which they arrive, and each gets a reply of one line of JSON. So every method parses its own
//! parameters, and checks them before it changes something.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_manage::model::ManagedModel;
use roadtrain_manage::rpc::framing::{REQUEST_BYTES_MAX, RequestFramer, Unframed};
use roadtrain_manage::rpc::message::{MethodParams, Methods, answer};
use roadtrain_manage::rpc::{
    Caller, CallerAccess, ControlPlane, Files, Manager, Psks, Rpc, RpcError,
};
use roadtrain_target_engine::{ConfigError, ConfigOperation, Export, Server, ServerConfig};
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// A target that refuses every change: changes would take memory, addresses and folders.
struct RefusingPlane(Arc<Server>);

impl ControlPlane for RefusingPlane {
    fn apply(
        &self,
        _: &[ConfigOperation<Export>],
        _: Option<Psks>,
    ) -> Result<Vec<ConfigOperation>, Option<ConfigError>> {
        Err(None)
    }

    fn server(&self) -> Arc<Server> {
        self.0.clone()
    }

    fn stop(&self) {}

    fn set_log_level(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// All methods of a target that another process has taken over: nothing can be created or opened.
struct RefusingMethods<'a>(Caller<'a>);

impl Methods for RefusingMethods<'_> {
    fn call(&self, name: &str, params: MethodParams<'_>) -> Rpc<Value> {
        let waits = |params: &Value| params.get("timeout").is_some();
        match name == "bdev_get_bdevs" && params.read().is_ok_and(|params| waits(&params)) {
            true => Err(RpcError::no_device("it would be waited for")),
            false => self.0.call(name, params),
        }
    }

    fn refused(&self, error: &RpcError, bytes: &[u8]) {
        self.0.refused(error, bytes);
    }
}

fn manager() -> &'static Manager {
    static MANAGER: OnceLock<Manager> = OnceLock::new();
    MANAGER.get_or_init(|| {
        let config = ServerConfig::new(vec![([127, 0, 0, 1], 0).into()], Vec::new());
        let server = Server::start(config).expect("a target starts");
        let plane = Box::new(RefusingPlane(Arc::new(server)));
        let manager = Manager::new(plane, ManagedModel::default(), Files::default());
        manager.release();
        manager
    })
}

fn frames(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<Unframed>) {
    let mut framer = RequestFramer::default();
    let mut found = Vec::new();
    for piece in stream.chunks(piece) {
        framer.feed(piece);
        loop {
            match framer.take() {
                Ok(Some(request)) => found.push(request),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fuzz_target!(|input: &[u8]| {
    let Some((piece, stream)) = input.split_first() else { return };
    let whole = frames(stream, stream.len().max(1));
    assert_eq!(frames(stream, usize::from(*piece).max(1)), whole);
    let manager = manager();
    for request in &whole.0 {
        assert!(request.len() <= REQUEST_BYTES_MAX);
        let answered = answer(
            request,
            &RefusingMethods(Caller {
                table: manager,
                access: CallerAccess::Client,
                peer: "a fuzzer",
            }),
        );
        if let Some(text) = answered.text {
            assert_eq!(text.matches('\n').count(), 1);
            serde_json::from_str::<Value>(&text).expect("an answer is JSON");
        }
    }
    assert_eq!(manager.model().state(), ManagedModel::default().state(), "something was made");
});
