//! A connected controller: reactors with their lanes, and the control thread that keeps them connected.

use super::admin::Admin;
use super::api::Front;
use super::config::HostConfig;
use super::control::Control;
use super::error::HostError;
use super::reactor::{Order, Report};
use super::stopping::{self, StopSignal};
use super::threads::{deal, spawn};
use super::view::ControllerView;
use crate::mailbox::{Outbox, mailbox};
use crate::platform::{Affinity, Threads, host_affinities, numa};
use crate::pulse::Pulse;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tracing::warn;

/// The reactor that a front is made for.
#[derive(Clone, Copy, Debug)]
pub struct ReactorInfo {
    /// Its number.
    pub index: usize,
    /// How many there are.
    pub count: usize,
    /// Its lanes: `LaneId(0)` to `LaneId(lanes - 1)`.
    pub lanes: usize,
    /// The core it is pinned to.
    pub core: Option<usize>,
}

/// A connected controller. Dropping it stops it.
pub struct Controller {
    view: ControllerView,
    reports: Outbox<Report>,
    sign: Arc<StopSignal>,
    orders: Vec<Outbox<Order>>,
    control: Option<JoinHandle<()>>,
}

impl Controller {
    /// Connects: admin queue, then every lane; `make_front` makes what runs on each reactor.
    ///
    /// # Errors
    /// Whatever keeps the first connection from working; later losses are repaired.
    pub fn connect(
        config: HostConfig,
        mut make_front: impl FnMut(ReactorInfo, &ControllerView) -> Box<dyn Front + Send>,
    ) -> Result<Self, HostError> {
        let mut admin = Admin::connect_patiently(&config)?;
        let info = admin.information(config.lanes, config.expresses(config.lanes))?;
        let lanes = (info.io_queues as usize).max(1);
        let count = config.reactor_count(lanes);
        let affinities = affinities(&config, count, &admin);
        let view = ControllerView::new(info, lanes, affinities.clone());
        let system = |what| move |source| HostError::System { what, source };
        let (reports, inbox) = mailbox().map_err(system("mailbox"))?;
        let dealt = deal(lanes, count).into_iter().zip(affinities).enumerate();
        let make = |(index, (lanes, affinity)): (usize, (Vec<usize>, Affinity))| {
            let core = affinity.cpus.single();
            let info = ReactorInfo { index, count, lanes: lanes.len(), core };
            let near = numa::take_from(affinity.node.into_iter().collect());
            let front = make_front(info, &view);
            drop(near);
            let counters = (view.counters.clone(), view.meters[index].clone());
            spawn(&config, affinity, lanes, front, reports.clone(), count, counters)
        };
        // A front may have much memory to fill.
        let reactors: Vec<_> =
            admin.while_kept_alive(|| dealt.map(make).collect::<Result<_, HostError>>())?;
        let orders = reactors.iter().map(|reactor| reactor.orders.clone()).collect();
        let mut driver =
            Control::new(config, view.clone(), admin, reactors, reports.clone(), inbox);
        driver.begin()?;
        let control = thread::Builder::new().name("roadtrain-ctl".into());
        let sign = StopSignal::new().map_err(system("eventfd"))?;
        let heeded = sign.clone();
        let body = move || {
            stopping::heed(&heeded);
            driver.run();
        };
        let control = control.spawn(body).map_err(system("thread"))?;
        Ok(Controller { view, reports, sign, orders, control: Some(control) })
    }

    /// What is known about the controller.
    #[must_use]
    pub fn view(&self) -> &ControllerView {
        &self.view
    }

    /// For asking whether all reactors make turns.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse::new(self.orders.iter().map(|orders| {
            let orders = orders.clone();
            Box::new(move |reply| orders.send(Order::Beat(reply))) as Box<_>
        }))
    }

    /// Has a reactor do something.
    #[cfg(test)]
    pub(crate) fn call(&self, reactor: usize, call: impl FnOnce() + Send + 'static) {
        self.orders[reactor].send(Order::Call(Box::new(call)));
    }

    /// Whether all fronts have ended, by themselves or because they were told to.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.control.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks the fronts to end; [`Controller::join`] waits for it. A target that still answers has
    /// [`HostConfig::timeout`] for what is under way, one that does not 3 s: then that fails
    /// ([`ControllerView::abandoned`]).
    pub fn stop(&self) {
        self.sign.raise();
        self.reports.send(Report::Stop);
    }

    /// Waits until every front has ended and the controller is shut down.
    pub fn join(mut self) {
        self.wait();
    }

    fn wait(&mut self) {
        if let Some(control) = self.control.take()
            && control.join().is_err()
        {
            warn!("the control thread panicked");
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if self.control.is_some() {
            self.stop();
            self.wait();
        }
    }
}

/// Where the reactors go: they send over the interface that the admin queue uses.
fn affinities(config: &HostConfig, count: usize, admin: &Admin) -> Vec<Affinity> {
    let (placement, cores, allowed) = (config.placement, &config.cores[..], &numa::allowed());
    host_affinities(Threads { placement, count, cores, allowed }, &admin.route())
}
