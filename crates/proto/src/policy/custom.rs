//! Policies of other crates.

use super::{BatchPolicy, PolicyRole};

/// Constructor of a policy for one direction of a lane. Two are equal if they are the same function.
#[derive(Clone, Copy, Debug)]
pub struct CustomPolicy(pub fn(PolicyRole) -> Box<dyn BatchPolicy + Send>);

impl PartialEq for CustomPolicy {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        core::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for CustomPolicy {}
