//! Development only: deterministic network, disk and clock.
