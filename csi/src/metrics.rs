//! Metrics of the driver, and the HTTP server that shows them.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

type Labels<const N: usize> = [(&'static str, String); N];

/// Counters of calls, and what was last seen of stores and attachments.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    calls: Family<Labels<2>, Counter>,
    seconds: Family<Labels<1>, Histogram>,
    target_calls: Family<Labels<3>, Counter>,
    store_capacity: Family<Labels<2>, Gauge>,
    store_free: Family<Labels<2>, Gauge>,
    attachments: Family<Labels<1>, Gauge>,
}

fn call_seconds() -> Histogram {
    // 5 ms to 160 s.
    Histogram::new(exponential_buckets(0.005, 2.0, 16))
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("roadtrain_csi");
        let calls = Family::default();
        registry.register("calls", "CSI calls by method and gRPC code", calls.clone());
        let seconds = Family::new_with_constructor(call_seconds as fn() -> Histogram);
        let help = "Durations of CSI calls";
        registry.register_with_unit("call", help, Unit::Seconds, seconds.clone());
        let target_calls = Family::default();
        let help = "JSON-RPC calls by target, method and code; code 0 is success";
        registry.register("target_calls", help, target_calls.clone());
        let store_capacity = Family::default();
        let help = "Size of a store";
        registry.register_with_unit("store_capacity", help, Unit::Bytes, store_capacity.clone());
        let store_free = Family::default();
        let help = "Free space of a store";
        registry.register_with_unit("store_free", help, Unit::Bytes, store_free.clone());
        let attachments = Family::default();
        let help = "Attached volumes on this node by state: ready, starting or gone";
        registry.register("attachments", help, attachments.clone());
        Metrics { registry, calls, seconds, target_calls, store_capacity, store_free, attachments }
    }

    /// Counts a CSI call.
    pub(crate) fn call(&self, method: &'static str, code: tonic::Code, duration: Duration) {
        let labels = [("method", method.to_owned()), ("code", format!("{code:?}"))];
        self.calls.get_or_create(&labels).inc();
        self.seconds
            .get_or_create(&[("method", method.to_owned())])
            .observe(duration.as_secs_f64());
    }

    /// Counts a call of a target.
    pub(crate) fn target_call(&self, target: &str, method: &str, code: String) {
        let labels = [("target", target.to_owned()), ("method", method.to_owned()), ("code", code)];
        self.target_calls.get_or_create(&labels).inc();
    }

    /// Shows the space of a store.
    pub(crate) fn store(&self, target: &str, store: &str, capacity_bytes: u64, free_bytes: u64) {
        let labels = [("target", target.to_owned()), ("store", store.to_owned())];
        let shown = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.store_capacity.get_or_create(&labels).set(shown(capacity_bytes));
        self.store_free.get_or_create(&labels).set(shown(free_bytes));
    }

    /// Shows how many attachments are in a state.
    pub(crate) fn attachments(&self, state: &str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.attachments.get_or_create(&[("state", state.to_owned())]).set(count);
    }

    /// Returns all metrics as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string fails never.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Gauges that are set before metrics are shown.
pub(crate) trait Refresh: Send + Sync + 'static {
    /// Sets gauges.
    fn refresh(&self) -> impl Future<Output = ()> + Send;
}

/// Serves GET /metrics until the process ends.
pub(crate) async fn serve<R: Refresh>(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    refresh: Arc<R>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (metrics, refresh) = (metrics.clone(), refresh.clone());
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                reply(request, metrics.clone(), refresh.clone())
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            // One that keeps its connection without requests is not waited for.
            let _ = tokio::time::timeout(Duration::from_secs(600), connection).await;
        });
    }
}

async fn reply<R: Refresh>(
    request: Request<Incoming>,
    metrics: Arc<Metrics>,
    refresh: Arc<R>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    if request.method() != hyper::Method::GET {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    } else if request.uri().path() != "/metrics" {
        *response.status_mut() = StatusCode::NOT_FOUND;
    } else {
        refresh.refresh().await;
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        *response.body_mut() = Full::new(Bytes::from(metrics.text()));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted() {
        let metrics = Metrics::new();
        metrics.call("CreateVolume", tonic::Code::Ok, Duration::from_millis(30));
        metrics.call("CreateVolume", tonic::Code::NotFound, Duration::from_millis(30));
        metrics.target_call("a", "bdev_lvol_create", "-17".into());
        metrics.store("a", "vols", 8 << 20, 4 << 20);
        metrics.attachments("ready", 2);
        let text = metrics.text();
        for line in [
            "roadtrain_csi_calls_total{method=\"CreateVolume\",code=\"Ok\"} 1\n",
            "roadtrain_csi_calls_total{method=\"CreateVolume\",code=\"NotFound\"} 1\n",
            "roadtrain_csi_call_seconds_count{method=\"CreateVolume\"} 2\n",
            "roadtrain_csi_target_calls_total{target=\"a\",method=\"bdev_lvol_create\",code=\"-17\"} 1\n",
            "roadtrain_csi_store_free_bytes{target=\"a\",store=\"vols\"} 4194304\n",
            "roadtrain_csi_attachments{state=\"ready\"} 2\n",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
    }
}
