//! Topology: a node reaches targets, a volume is at one.

use super::ControllerService;
use crate::proto::{Topology, TopologyRequirement};
use crate::target::Target;
use tonic::Status;

/// Value of a segment: the node reaches the target.
const REACHED: &str = "true";

/// Returns the segment of a target: a node has one for each that it reaches.
pub(crate) fn segment(driver_name: &str, target: &str) -> (String, String) {
    (format!("{driver_name}/target-{target}"), REACHED.to_owned())
}

/// Returns the topology of volumes of a target.
pub(super) fn topology(service: &ControllerService, target: &Target) -> Topology {
    let segments = [segment(&service.driver_name, &target.settings.name)].into_iter().collect();
    Topology { segments }
}

/// True if nodes of this topology reach the target.
pub(super) fn reaches(service: &ControllerService, topology: &Topology, target: &Target) -> bool {
    let (key, value) = segment(&service.driver_name, &target.settings.name);
    topology.segments.get(&key) == Some(&value)
}

/// Returns the targets at which a volume may be made, the preferred ones first.
///
/// # Errors
/// RESOURCE_EXHAUSTED: no target is accessible as required.
pub(super) fn candidates<'a>(
    service: &'a ControllerService,
    requirement: Option<&TopologyRequirement>,
) -> Result<Vec<&'a Target>, Status> {
    let all = || service.targets.iter();
    let Some(requirement) = requirement else { return Ok(all().collect()) };
    let is_allowed = |target: &&Target| {
        let requisite = &requirement.requisite;
        requisite.is_empty() || requisite.iter().any(|one| reaches(service, one, target))
    };
    let preference = |target: &&Target| {
        let mut preferred = requirement.preferred.iter();
        preferred.position(|one| reaches(service, one, target)).unwrap_or(usize::MAX)
    };
    let mut found: Vec<&Target> = all().filter(is_allowed).collect();
    found.sort_by_key(preference);
    match found.is_empty() {
        true => Err(Status::resource_exhausted("no target is accessible as the topology requires")),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use crate::metrics::Metrics;
    use std::sync::Arc;

    fn service(names: &[&str]) -> ControllerService {
        let metrics = Arc::new(Metrics::new());
        let target = |name: &&str| {
            let line = format!(
                "roadtrain-csi --endpoint unix:///a --rpc /a --target 192.0.2.7:4420 --store s --target-name {name}"
            );
            let args: Args = clap::Parser::parse_from(line.split_whitespace());
            let (settings, place) = crate::settings::targets(&args).unwrap().remove(0);
            Target::new(settings, place, metrics.clone())
        };
        ControllerService::new("csi.a".into(), names.iter().map(target).collect(), metrics.clone())
    }

    fn node(names: &[&str]) -> Topology {
        Topology { segments: names.iter().map(|name| segment("csi.a", name)).collect() }
    }

    #[test]
    fn targets_are_chosen_by_topology() {
        let service = service(&["a", "b", "c"]);
        let chosen = |requisite: &[Topology], preferred: &[Topology]| {
            let requirement = TopologyRequirement {
                requisite: requisite.to_vec(),
                preferred: preferred.to_vec(),
            };
            let found = candidates(&service, Some(&requirement)).ok()?;
            Some(
                found
                    .iter()
                    .map(|target| target.settings.name.clone())
                    .collect::<Vec<_>>()
                    .concat(),
            )
        };
        assert_eq!(candidates(&service, None).unwrap().len(), 3);
        assert_eq!(chosen(&[], &[]).as_deref(), Some("abc"));
        assert_eq!(chosen(&[node(&["b", "c"])], &[]).as_deref(), Some("bc"));
        assert_eq!(chosen(&[node(&["b"]), node(&["c"])], &[node(&["c"])]).as_deref(), Some("cb"));
        assert_eq!(chosen(&[node(&["d"])], &[]), None);
        assert!(reaches(&service, &topology(&service, &service.targets[0]), &service.targets[0]));
    }
}
