//! Golden tests against the sessions recorded in `tests/traces`, Linux's host with Linux's target.

mod admin;
mod capture;
mod session;
mod transport;
