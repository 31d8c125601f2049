//! Subflows of connections over MPTCP.

use crate::output::columns;
use crate::units::{show_bytes, show_us};
use roadtrain_system::platform::mptcp::MptcpSubflow;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Most subflows that the text shows.
const SHOWN_MAX: usize = 32;

/// Subflow of a connection over MPTCP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubflowReport {
    /// Local address.
    pub local: SocketAddr,
    /// Address of the other end.
    pub peer: SocketAddr,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: f64,
    /// Bytes sent that the other end has acknowledged.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

impl From<&MptcpSubflow> for SubflowReport {
    fn from(subflow: &MptcpSubflow) -> SubflowReport {
        let &MptcpSubflow { local, peer, rtt_us, sent_bytes, received_bytes } = subflow;
        SubflowReport { local, peer, rtt_us: rtt_us.into(), sent_bytes, received_bytes }
    }
}

/// Formats the subflows of each lane, up to a maximum; empty without subflows.
pub(crate) fn text<'a>(lanes: impl Iterator<Item = (String, &'a [SubflowReport])>) -> String {
    let each = lanes.flat_map(|(lane, all)| all.iter().map(move |one| (lane.clone(), one)));
    let rows: Vec<Vec<String>> = each.map(|(lane, one)| one.cells(&lane)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let shown = &rows[..rows.len().min(SHOWN_MAX)];
    let table = columns(&["  subflow of", "local", "to", "rtt", "sent", "received"], shown);
    let mut text: String = table.lines().map(|row| format!("{row}\n")).collect();
    if let Some(more @ 1..) = rows.len().checked_sub(SHOWN_MAX) {
        text.push_str(&format!("  {more} more subflows: --json\n"));
    }
    text
}

impl SubflowReport {
    fn cells(&self, lane: &str) -> Vec<String> {
        vec![
            format!("  {lane}"),
            self.local.to_string(),
            self.peer.to_string(),
            show_us(self.rtt_us),
            show_bytes(self.sent_bytes),
            show_bytes(self.received_bytes),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subflows_are_shown_by_lane_up_to_a_maximum() {
        assert_eq!(text([("lane 0".to_owned(), &[][..])].into_iter()), "");
        let one = SubflowReport::from(&MptcpSubflow {
            local: "10.77.0.1:40000".parse().unwrap(),
            peer: "10.77.0.2:4420".parse().unwrap(),
            rtt_us: 250,
            sent_bytes: 4096,
            received_bytes: 0,
        });
        let all = vec![one; SHOWN_MAX + 1];
        let text = text([("lane 3".to_owned(), &all[..])].into_iter());
        assert!(text.contains("  lane 3") && text.contains("10.77.0.2:4420"), "{text}");
        assert!(text.ends_with("  1 more subflows: --json\n"), "{text}");
        assert_eq!(text.lines().count(), SHOWN_MAX + 2);
    }
}
