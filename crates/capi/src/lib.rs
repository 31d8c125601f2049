//! `libroadtrain.so`: the host for programs in C. docs/reference/c-api.md describes it, `include/roadtrain.h` has it.
//!
//! | file | purpose |
//! |---|---|
//! | `abi` | the functions of the header |
//! | `types` | its types and numbers |
//! | `border` | pointers, errors and panics between C and Rust |
//! | `disk` | a connected namespace |
//! | `ring` | requests in flight |

#![allow(non_camel_case_types, reason = "C's names")]

pub mod abi;
mod border;
mod disk;
mod ring;
pub mod types;
