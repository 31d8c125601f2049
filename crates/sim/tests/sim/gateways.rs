//! Groups of many gateways: the page has the program's tables, which keep the promises.

use roadtrain_sim::gateways::{GATEWAYS, IMAGES, placement, recovery, tables};
use std::time::Duration;

const PAGE: &str = include_str!("../../../../docs/internals/gateways.md");

#[test]
fn the_page_is_what_the_program_prints() {
    let tables = tables();
    for table in tables.split("\n\n") {
        assert!(
            PAGE.contains(table.trim_end()),
            "docs/internals/gateways.md: take the tables of `cargo run -p roadtrain-sim --bin gateways`:\n{table}"
        );
    }
}

#[test]
fn only_what_has_to_moves() {
    for (gateways, images) in
        GATEWAYS.into_iter().flat_map(|gateways| IMAGES.map(|images| (gateways, images)))
    {
        let placed = placement(gateways, images);
        assert_eq!(placed.needless, 0, "{gateways} {images}");
        // The leaving gateway's images move, and no others.
        assert_eq!(placed.leaves, (placed.fewest, placed.most), "{gateways} {images}");
    }
}

/// With few images, those of a failed gateway are served again within 10 s, for all phases.
#[test]
fn recovery_is_quick() {
    for seed in 0..200 {
        for gateways in [2, 3, 8] {
            let recovered = recovery(seed, gateways, 10);
            assert!(
                recovered.images > 0 && recovered.known < Duration::from_secs(5),
                "{seed}: {recovered:?}"
            );
            assert!(recovered.last < Duration::from_secs(10), "{seed}: {recovered:?}");
            assert!(recovered.first >= Duration::from_secs(4), "{seed}: {recovered:?}");
        }
    }
}
