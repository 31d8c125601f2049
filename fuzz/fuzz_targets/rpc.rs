//! A stream of JSON-RPC requests: however it is cut into pieces the same requests come of it, and each is answered in
//! one line of JSON. Methods that are known read their parameters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_manage::rpc::framing::{Framer, REQUEST_BYTES_MAX, Unframed};
use roadtrain_manage::rpc::message::{Methods, Params, answer};
use roadtrain_manage::rpc::{Rpc, RpcError, methods};
use serde_json::Value;

struct Known;

impl Methods for Known {
    fn call(&self, name: &str, params: Params<'_>) -> Rpc<Value> {
        methods::find(name).ok_or_else(|| RpcError::method(""))?;
        params.read::<Value>().map_err(RpcError::params)
    }
}

fn frames(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<Unframed>) {
    let mut framer = Framer::default();
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
    for request in &whole.0 {
        assert!(request.len() <= REQUEST_BYTES_MAX);
        let answered = answer(request, &Known);
        if let Some(text) = answered.text {
            assert_eq!(text.matches('\n').count(), 1);
            serde_json::from_str::<Value>(&text).expect("an answer is JSON");
        }
    }
});
