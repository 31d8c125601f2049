//! Metrics of several processes in one file for node_exporter's textfile collector.

use super::encode::{Format, text};
use roadtrain_reactor::metrics::MetricsSnapshot;
use std::collections::BTreeMap;

/// Returns all metrics of several targets and attachments: every sample has a label `id`. Those of the processes
/// themselves are left out, as node_exporter has some of the same names.
#[must_use]
pub fn textfile(snapshots: &[MetricsSnapshot]) -> String {
    let mut families: BTreeMap<String, (String, String)> = BTreeMap::new();
    for snapshot in snapshots {
        let text = text(snapshot, None, Format::Plain);
        let mut family = String::new();
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                family = comment.split(' ').nth(1).unwrap_or_default().to_owned();
                let (header, samples) = families.entry(family.clone()).or_default();
                if samples.is_empty() && header.lines().count() < 2 {
                    header.push_str(line);
                    header.push('\n');
                }
            } else if let Some((_, samples)) = families.get_mut(&family) {
                samples.push_str(&with_id(line, &snapshot.id));
                samples.push('\n');
            }
        }
    }
    families.retain(|name, _| !name.starts_with("process_"));
    families.into_values().map(|(header, samples)| header + &samples).collect()
}

/// Returns the sample with a label `id`, if it has none.
fn with_id(line: &str, id: &str) -> String {
    let label = format!("id=\"{}\"", id.replace('\\', "\\\\").replace('"', "\\\""));
    let Some((name, rest)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        return format!("{name}{{{label}}} {value}");
    };
    match rest {
        rest if rest.starts_with("id=\"") => line.to_owned(),
        rest if rest.starts_with('}') => format!("{name}{{{label}{rest}"),
        rest => format!("{name}{{{label},{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_reactor::metrics::{AttachmentSample, SnapshotKind};

    #[test]
    fn a_family_has_one_head_and_each_sample_an_id() {
        let target = MetricsSnapshot { id: "target0".into(), ..MetricsSnapshot::default() };
        let attachment = MetricsSnapshot {
            id: "nbd0".into(),
            kind: SnapshotKind::Attachment,
            attachment: Some(AttachmentSample::default()),
            ..MetricsSnapshot::default()
        };
        let text = textfile(&[target, attachment]);
        assert_eq!(text.matches("# TYPE roadtrain_healthy gauge").count(), 1, "{text}");
        assert!(text.contains("roadtrain_healthy{id=\"target0\"} 1\n"), "{text}");
        assert!(text.contains("roadtrain_healthy{id=\"nbd0\"} 1\n"), "{text}");
        assert!(text.contains("roadtrain_attachment_lanes{id=\"nbd0\"} 0\n"), "{text}");
        assert!(!text.contains("process_"), "{text}");
        let is_whole = |line: &str| line.starts_with('#') || line.matches("id=\"").count() == 1;
        assert!(text.lines().all(is_whole), "{text}");
    }
}
