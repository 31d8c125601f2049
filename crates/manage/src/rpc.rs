//! JSON-RPC management in the language of SPDK's clients: framing and requests without sockets, the table of methods,
//! and its transports, a Unix socket and HTTP.

mod baselines;
mod caller;
mod calls;
pub mod client;
mod described;
mod error;
pub mod framing;
mod histogram;
mod manager;
pub mod message;
pub mod methods;
mod namespace_requests;
mod table;
mod unix;
mod web;

pub use caller::{Caller, CallerAccess, MethodOutcome, MethodTable};
pub use error::{Rpc, RpcError};
pub use manager::{ControlPlane, Files, Manager, ManagerSession, Psks, ReleasedStores};
pub use unix::{UnixServer, serve_stream};
pub use web::{Credentials, router};
