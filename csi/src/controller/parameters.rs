//! Parameters of a StorageClass.

use std::collections::HashMap;
use tonic::Status;

/// Parameters that Kubernetes' sidecars add.
const KUBERNETES: &str = "csi.storage.k8s.io/";
/// Parameter for nodes, which goes into the context of the volume.
pub(crate) const MAKE_OPTIONS: &str = "mkfsOptions";

/// Parameters of a StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VolumeParameters {
    /// Store; `None`: the one with most free space.
    pub(super) store: Option<String>,
    /// True if space is allocated by writes.
    pub(super) is_thin: bool,
    /// Parameters that nodes need.
    pub(super) context: HashMap<String, String>,
}

/// Parses parameters.
///
/// # Errors
/// INVALID_ARGUMENT: an unknown parameter or value.
pub(super) fn parse(parameters: &HashMap<String, String>) -> Result<VolumeParameters, Status> {
    let mut parsed = VolumeParameters::default();
    for (key, value) in parameters {
        match (key.as_str(), value.as_str()) {
            ("store", name) => parsed.store = Some(name.to_owned()),
            ("provisioning", "thick") => parsed.is_thin = false,
            ("provisioning", "thin") => parsed.is_thin = true,
            ("provisioning", other) => {
                let what = format!("parameter provisioning: {other} is neither thick nor thin");
                return Err(Status::invalid_argument(what));
            }
            (MAKE_OPTIONS, options) => {
                parsed.context.insert(MAKE_OPTIONS.to_owned(), options.to_owned());
            }
            (key, _) if key.starts_with(KUBERNETES) => {}
            (key, _) => {
                let what = format!(
                    "parameter {key} is not known: there are store, provisioning, {MAKE_OPTIONS}"
                );
                return Err(Status::invalid_argument(what));
            }
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_checked() {
        let parse_pairs = |pairs: &[(&str, &str)]| {
            parse(
                &pairs
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                    .collect(),
            )
        };
        assert_eq!(parse_pairs(&[]).unwrap(), VolumeParameters::default());
        let all = [
            ("store", "fast"),
            ("provisioning", "thin"),
            (MAKE_OPTIONS, "-b 4096"),
            ("csi.storage.k8s.io/pvc/name", "a"),
        ];
        let parsed = parse_pairs(&all).unwrap();
        assert_eq!((parsed.store.as_deref(), parsed.is_thin), (Some("fast"), true));
        assert_eq!(parsed.context.len(), 1);
        for wrong in [("provisioning", "fat"), ("Store", "a")] {
            assert_eq!(parse_pairs(&[wrong]).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
    }
}
