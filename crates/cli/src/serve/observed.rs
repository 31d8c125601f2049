//! A target as the source of its metrics.

use super::served::RunningTarget;
use roadtrain_manage::metrics::{ManagementSample, MetricsSource};
use roadtrain_reactor::metrics::MetricsSnapshot;
use std::sync::Arc;
use std::time::Duration;

/// A reactor that makes no progress for this time hangs.
const TURN_LIMIT: Duration = Duration::from_secs(2);

/// Metrics of [`RunningTarget`], and its RPC manager.
pub(super) struct TargetMetrics(pub(super) Arc<RunningTarget>);

impl MetricsSource for TargetMetrics {
    fn snapshot(&self) -> MetricsSnapshot {
        let snapshot = self.0.snapshot();
        let inside = self.0.server().problems();
        let problems = snapshot.problems.into_iter().chain(inside).collect();
        MetricsSnapshot { problems, ..snapshot }
    }

    fn managed(&self) -> Option<ManagementSample> {
        self.0.manager().map(|manager| manager.managed())
    }

    fn problems(&self) -> Vec<String> {
        let server = self.0.server();
        let silent = server.pulse().check(TURN_LIMIT).err();
        let failure = server.failure();
        let hangs = silent.map(|silent| silent.to_string()).filter(|_| failure.is_none());
        failure.into_iter().chain(hangs).chain(server.problems()).collect()
    }
}
