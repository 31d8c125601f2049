//! Published claims that this machine or this transport cannot test: named, not passed over.

use crate::eval::plan::{Claim, Figure, Test};

pub(super) fn figure() -> Figure {
    let claim = |text, published, why| Claim { text, published, test: Test::Elsewhere, why };
    let cores = "Needs more cores than the one a side that this machine has.";
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
                "Tyche (2014), fig. 10: buffers and connections on the NIC's node: reads +35 %, writes +97 %",
                "+35 %, +97 %",
                "This machine has one NUMA node.",
            ),
            claim(
                "Tyche (2014), table III: Psearchy, IOR, HBase over 1 and 6 NICs of 10 GbE",
                "2.3 to 8 times NBD",
                "Needs links of 10 Gbit/s and cores to fill them.",
            ),
        ],
        ..Figure::default()
    }
}
