//! Calls of the driver's services: each runs on a task of its own, and is logged and counted.

use crate::metrics::Metrics;
use std::sync::Arc;
use std::time::Instant;
use tonic::{Response, Status};

/// Defines methods of a service. A function of the same name in a part of the caller's module does the call.
macro_rules! calls {
    ($($name:ident, $method:literal, $request:ident, $response:ident, $place:ident;)*) => {
        $(
            // Written as async_trait writes it: an attribute sees no functions that a macro makes.
            fn $name<'a, 'async_trait>(
                &'a self,
                request: tonic::Request<$crate::proto::$request>,
            ) -> std::pin::Pin<
                Box<
                    dyn Future<Output = Result<tonic::Response<$crate::proto::$response>, tonic::Status>>
                        + Send
                        + 'async_trait,
                >,
            >
            where
                'a: 'async_trait,
                Self: 'async_trait,
            {
                let (service, request) = (self.clone(), request.into_inner());
                let metrics = self.metrics.clone();
                Box::pin(async move {
                    let call = async move { $place::$name(&service, request).await };
                    $crate::calls::run_call(metrics, $method, call).await
                })
            }
        )*
    };
}
pub(crate) use calls;

/// Does a call, logs and counts it. It has a task of its own: when the caller does not wait for the end, the call goes on,
/// and keeps its locks.
pub(crate) async fn run_call<T: Send + 'static>(
    metrics: Arc<Metrics>,
    method: &'static str,
    call: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<Response<T>, Status> {
    let counted = async move {
        let begin = Instant::now();
        let result = call.await;
        let code = result.as_ref().map_or_else(Status::code, |_| tonic::Code::Ok);
        metrics.call(method, code, begin.elapsed());
        let ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &result {
            Ok(_) => tracing::info!(method, ms, "done"),
            Err(status) => {
                tracing::warn!(method, ms, code = ?status.code(), "refused: {}", status.message());
            }
        }
        result
    };
    let ended = tokio::spawn(counted).await;
    ended.unwrap_or_else(|error| Err(Status::internal(error.to_string()))).map(Response::new)
}
