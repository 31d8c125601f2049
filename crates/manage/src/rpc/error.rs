//! Errors with SPDK's numbers and words, which clients look for; what to do comes behind them.

use serde_json::Value;
use std::fmt::Display;

/// Why a call was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// As JSON-RPC has it, or a negative errno.
    pub code: i32,
    /// Begins with SPDK's words.
    pub message: String,
    /// Details for programs, as JSON-RPC 2.0 has them.
    pub data: Option<Box<Value>>,
}

/// Results of calls.
pub type Rpc<T> = Result<T, RpcError>;

macro_rules! errors {
    ($($(#[$about:meta])* $name:ident $code:literal $words:literal;)*) => {
        impl RpcError {
            $(
                $(#[$about])*
                #[must_use]
                pub fn $name(more: impl Display) -> RpcError {
                    RpcError::new($code, $words, more)
                }
            )*
        }
    };
}

errors! {
    /// It is no JSON.
    parse -32700 "Parse error";
    /// It is JSON and no request.
    request -32600 "Invalid request";
    /// No such method.
    method -32601 "Method not found";
    /// Most of what `nvmf_*` refuse.
    params -32602 "Invalid parameters";
    /// Parameters of `bdev_*` that do not fit.
    decode -32603 "spdk_json_decode_object failed";
    /// It failed.
    internal -32603 "Internal error";
    /// What the configuration file has is the file's.
    not_permitted -1 "Operation not permitted";
    /// There is no such file.
    no_file -2 "No such file or directory";
    /// It is not in the state file, so it is undone.
    io -5 "Input/output error";
    /// Somebody uses it.
    busy -16 "Device or resource busy";
    /// It is there already.
    exists -17 "File exists";
    /// There is none.
    no_device -19 "No such device";
    /// A value that cannot be.
    invalid -22 "Invalid argument";
    /// There is no such key.
    no_key -126 "Required key not available";
}

impl RpcError {
    /// `words`, and behind them `more` if that says anything.
    #[must_use]
    pub fn new(code: i32, words: &str, more: impl Display) -> RpcError {
        let more = more.to_string();
        let message = if more.is_empty() { words.to_owned() } else { format!("{words}: {more}") };
        RpcError { code, message, data: None }
    }
}
