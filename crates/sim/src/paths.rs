//! Hosts with several paths: each path is a [`SimHost`] with an association of its own. Requests that one cannot carry
//! move to another one by the rules of `roadtrain_host_proto::paths`.

use crate::host::{SimHost, exchange};
use crate::load::SimLoad;
use crate::plan::{Sabotage, SimPlan};
use crate::request::LoadRequest;
use crate::transport::SimTransport;
use roadtrain_host_proto::paths::{PathChoice, PathPolicy, Selector};
use roadtrain_host_proto::requests::{MovedRequest, RequestProperties};
use roadtrain_proto::time::Instant;

/// Paths of a host.
pub struct HostPaths {
    /// Selectors of the lanes.
    selectors: Vec<Selector>,
    /// True for a deliberate fault: requests move to other paths at once, and lost controllers are not ended.
    is_early: bool,
}

impl HostPaths {
    /// Makes the paths of a host of that plan.
    #[must_use]
    pub fn new(plan: &SimPlan, number: usize) -> Self {
        let policies = [PathPolicy::Latency, PathPolicy::RoundRobin, PathPolicy::QueueDepth];
        let policy = policies[number % policies.len()];
        let selector = |_| Selector::new(policy, plan.paths.into());
        let is_early = plan.sabotage == Some(Sabotage::EarlyMove);
        HostPaths { selectors: (0..plan.lanes).map(selector).collect(), is_early }
    }

    /// Moves requests and events between the paths, after their turns.
    ///
    /// # Errors
    /// A violation of the checked rules.
    pub fn turn<T: SimTransport>(
        &mut self,
        now: Instant,
        paths: &mut [SimHost<T>],
        network: &mut T,
        load: &mut SimLoad,
    ) -> Result<(), String> {
        if let Some((first, others)) = paths.split_first_mut()
            && others.iter().any(|other| other.waits_for_first())
            && let Some(beside) = first.of_first()
        {
            others.iter_mut().for_each(|other| other.begin(now, beside.clone()));
            first.remind(now, network, load);
        }
        for path in 0..paths.len() {
            let others = paths.iter().enumerate().filter(|(other, _)| *other != path);
            paths[path].has_help = others.into_iter().any(|(_, other)| other.is_live());
        }
        if !self.is_early {
            exchange(now, paths, network, load);
        }
        let mut has_moved = false;
        for lane in 0..self.selectors.len() {
            let selector = &mut self.selectors[lane];
            for (path, host) in paths.iter().enumerate() {
                if selector.state(path) != host.path_state(lane) {
                    selector.set_state(path, host.path_state(lane));
                }
                selector.set_barred(path, host.barred.clone());
            }
            for from in 0..paths.len() {
                let free = paths[from].take_free(lane, self.is_early);
                has_moved |= self.place(now, paths, lane, from, free);
                let (mut go, selector) = (Vec::new(), &mut self.selectors[lane]);
                for moved in paths[from].take_diverted(lane) {
                    let nsid = moved.request().nsid();
                    selector.refused(now, from, nsid);
                    match selector.has_other(now, from, nsid) {
                        true => go.push(moved),
                        false => paths[from].keep(lane, moved),
                    }
                }
                has_moved |= self.place(now, paths, lane, from, go);
            }
        }
        if has_moved {
            paths.iter_mut().try_for_each(|path| path.resume_requests(now, network, load))?;
        }
        Ok(())
    }

    /// Places requests on paths. True if one has moved to another path.
    fn place<T: SimTransport>(
        &mut self,
        now: Instant,
        paths: &mut [SimHost<T>],
        lane: usize,
        from: usize,
        moved: Vec<MovedRequest<LoadRequest>>,
    ) -> bool {
        let mut has_moved = false;
        for moved in moved {
            let request = moved.request();
            let offer = |path: usize| paths[path].offer(now, lane, request);
            let to = match self.selectors[lane].choose(now, request.nsid(), offer) {
                PathChoice::Path(path) | PathChoice::Wait(path) => path,
                PathChoice::Full => from,
            };
            if to == from {
                paths[from].keep(lane, moved);
            } else {
                paths[to].adopt(lane, moved);
                has_moved = true;
            }
        }
        has_moved
    }
}
