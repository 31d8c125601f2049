//! Lanes over Ethernet: two ends' links over a network that loses, delays, repeats and cuts.

mod hostile;
mod network;
mod properties;
