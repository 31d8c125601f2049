//! Published claims that this machine or this transport cannot test: named, not passed over.

use crate::eval::plan::{Claim, Figure, Test};

pub(super) fn figure() -> Figure {
    let claim = |text, published, why| Claim { text, published, test: Test::Elsewhere, why };
    let cores = "Needs more cores than the one a side that this machine has.";
    let ethernet = "Belongs to Tyche's own Ethernet transport, not to NVMe/TCP.";
    Figure {
        id: "elsewhere",
        source: "all",
        title: "Not measured here",
        question: "Which published claims are left out, and why?",
        how: "",
        claims: vec![
            claim(
                "i10, fig. 7: 4 cores saturate a 700 kIOPS SSD (NVMe/TCP: 10)",
                "4 and 10 cores",
                cores,
            ),
            claim("i10, fig. 7: 2.8 MIOPS over 100 Gb/s with about 20 cores", "2.8 MIOPS", cores),
            claim(
                "i10, app. B: batching system calls as well brings another 1.2 times",
                "x1.2",
                "The reactor always batches its calls through io_uring: there is no side without.",
            ),
            claim("PINoF, fig. 7: ahead of i10 on 1 to 24 cores", "everywhere", cores),
            claim(
                "Tyche, fig. 1: link use of 56 % at 4 KiB without batching",
                "56 %",
                "Loopback has no line rate that a share could be taken of.",
            ),
            claim(
                "Tyche, fig. 7: two 4 KiB payloads in a frame: 88 % link use",
                "88.0 %",
                ethernet,
            ),
            claim(
                "Tyche: callbacks instead of hand-overs: 73.7 us to 53.4 us at depth 1",
                "x0.72",
                "One reactor a core runs everything to completion: there is no hand-over to remove.",
            ),
            claim(
                "Tyche (2014), figs. 9 to 11: line rate, NUMA, receive threads",
                "6.2 GB/s",
                ethernet,
            ),
        ],
        ..Figure::default()
    }
}
