//! Selection of namespaces by the query of a request: a target may have thousands, with some forty time series each.

use percent_encoding::percent_decode_str;
use roadtrain_reactor::metrics::{MetricsSnapshot, NamespaceSample};

/// Most namespaces in the text for Prometheus, unless the query has another limit.
pub(super) const NAMESPACES_MAX: usize = 1024;

const USAGE: &str =
    "use namespace=NSID or namespace=NQN/NSID, as often as needed, and limit=NUMBER";

/// A parameter `namespace`.
#[derive(Debug, PartialEq, Eq)]
struct NamespaceName {
    /// NQN of its subsystem; `None`: any.
    nqn: Option<String>,
    nsid: u32,
}

/// Selection of the namespaces of a snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NamespaceSelection {
    /// Selected namespaces; empty: all.
    names: Vec<NamespaceName>,
    /// Most namespaces; `None`: no limit.
    limit: Option<usize>,
}

impl NamespaceSelection {
    /// Parses the query of a request; `limit` applies if the query has none.
    ///
    /// # Errors
    /// The parameter that is unknown or invalid, and the valid ones.
    pub(super) fn parse(query: Option<&str>, limit: Option<usize>) -> Result<Self, String> {
        let mut selection = NamespaceSelection { names: Vec::new(), limit };
        let parameters = query.into_iter().flat_map(|query| query.split('&'));
        for parameter in parameters.filter(|parameter| !parameter.is_empty()) {
            let invalid = || format!("{parameter}: {USAGE}");
            let (name, value) = parameter.split_once('=').ok_or_else(invalid)?;
            let value = percent_decode_str(value).decode_utf8().map_err(|_| invalid())?;
            match name {
                "limit" => selection.limit = Some(value.parse().map_err(|_| invalid())?),
                "namespace" => {
                    let (nqn, nsid) = match value.rsplit_once('/') {
                        Some((nqn, nsid)) => (Some(nqn.to_owned()), nsid),
                        None => (None, &*value),
                    };
                    let nsid = nsid.parse().map_err(|_| invalid())?;
                    selection.names.push(NamespaceName { nqn, nsid });
                }
                _ => return Err(invalid()),
            }
        }
        Ok(selection)
    }

    /// Removes the other namespaces of a snapshot. Counts those that the limit has removed.
    pub(super) fn apply(&self, snapshot: &mut MetricsSnapshot) {
        let is_it = |one: &NamespaceSample| {
            let mut names = self.names.iter().filter(|name| name.nsid == one.nsid);
            names.any(|name| name.nqn.as_ref().is_none_or(|nqn| *nqn == one.nqn))
        };
        if !self.names.is_empty() {
            snapshot.namespaces.retain(is_it);
        }
        let limit = self.limit.unwrap_or(usize::MAX);
        snapshot.namespaces_left_out += snapshot.namespaces.len().saturating_sub(limit) as u64;
        snapshot.namespaces.truncate(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str = "nqn.2025-01.io.example:a/b";

    fn selected(query: &str) -> (Vec<(char, u32)>, u64) {
        let of = |nqn: &str, nsid| NamespaceSample {
            nqn: nqn.into(),
            nsid,
            ..NamespaceSample::default()
        };
        let other = "nqn.2025-01.io.example:c";
        let namespaces = vec![of(NQN, 1), of(NQN, 2), of(NQN, 30), of(other, 1), of(other, 2)];
        let mut snapshot = MetricsSnapshot { namespaces, ..MetricsSnapshot::default() };
        let selection = NamespaceSelection::parse(Some(query), Some(4)).unwrap();
        selection.apply(&mut snapshot);
        let all = snapshot.namespaces.iter();
        let all = all.map(|one| (one.nqn.chars().last().unwrap(), one.nsid));
        (all.collect(), snapshot.namespaces_left_out)
    }

    #[test]
    fn a_query_selects_namespaces_and_says_how_many_are_left_out() {
        let first = vec![('b', 1), ('b', 2), ('b', 30), ('c', 1)];
        assert_eq!(selected(""), (first, 1));
        assert_eq!(selected("limit=5").1, 0);
        assert_eq!(selected("limit=0"), (vec![], 5));
        assert_eq!(selected("namespace=2"), (vec![('b', 2), ('c', 2)], 0));
        assert_eq!(selected("namespace=2&namespace=1&limit=3").1, 1);
        let one = (vec![('b', 30)], 0);
        assert_eq!(selected(&format!("namespace={NQN}/30")), one);
        assert_eq!(selected("namespace=nqn.2025-01.io.example%3Aa%2Fb%2F30"), one);
        assert_eq!(selected("namespace=99"), (vec![], 0));
    }

    #[test]
    fn an_invalid_query_names_the_parameter() {
        for query in
            ["limit=x", "limit=-1", "namespace=", "namespace=a/b", "nsid=1", "x", "namespace=%FF"]
        {
            let why = NamespaceSelection::parse(Some(query), None).unwrap_err();
            assert!(why.starts_with(query) && why.contains("namespace=NSID"), "{why}");
        }
        let none = NamespaceSelection::parse(None, None).unwrap();
        assert_eq!(none, NamespaceSelection::default());
    }
}
