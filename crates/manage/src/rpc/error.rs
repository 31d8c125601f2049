//! Errors with SPDK's codes and words, which clients match; the remedy follows them.

use serde_json::Value;
use std::fmt::Display;

/// Error response of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// Code of JSON-RPC, or a negative errno.
    pub code: i32,
    /// Text that begins with SPDK's words.
    pub message: String,
    /// Details for programs, as JSON-RPC 2.0 defines them.
    pub data: Option<Box<Value>>,
}

/// Result of a call.
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
    /// Invalid JSON.
    parse -32700 "Parse error";
    /// JSON, but no request.
    request -32600 "Invalid request";
    /// Unknown method.
    method -32601 "Method not found";
    /// Invalid parameters of most `nvmf_*` methods.
    params -32602 "Invalid parameters";
    /// Invalid parameters of `bdev_*` methods.
    decode -32603 "spdk_json_decode_object failed";
    /// Internal failure.
    internal -32603 "Internal error";
    /// Objects of the configuration file cannot be changed by RPC.
    not_permitted -1 "Operation not permitted";
    /// Missing file.
    no_file -2 "No such file or directory";
    /// The state file could not be written, so the change was undone.
    io -5 "Input/output error";
    /// The object is in use.
    busy -16 "Device or resource busy";
    /// The object exists already.
    exists -17 "File exists";
    /// Missing object.
    no_device -19 "No such device";
    /// Invalid value.
    invalid -22 "Invalid argument";
    /// Missing key.
    no_key -126 "Required key not available";
}

impl RpcError {
    /// Joins `words` and `more`, if that is not empty.
    #[must_use]
    pub fn new(code: i32, words: &str, more: impl Display) -> RpcError {
        let more = more.to_string();
        let message = if more.is_empty() { words.to_owned() } else { format!("{words}: {more}") };
        RpcError { code, message, data: None }
    }
}
