//! Guests of a reactor: other reactors on its thread and in its ring.

use roadtrain_system::guest::GuestReactor;
use roadtrain_system::ring::{ReactorRing, RingRole};

/// Guest, and its role in the ring.
pub(crate) struct RoleGuest {
    pub(crate) role: RingRole,
    pub(crate) guest: Box<dyn GuestReactor>,
}

impl RoleGuest {
    /// Calls the guest while entries carry its role.
    #[inline]
    pub(crate) fn call<T>(
        &mut self,
        ring: &mut ReactorRing,
        call: impl FnOnce(&mut dyn GuestReactor, &mut ReactorRing) -> T,
    ) -> T {
        ring.set_role(self.role);
        let result = call(&mut *self.guest, ring);
        ring.set_role(RingRole::OWNER);
        result
    }
}

/// Guests of a reactor.
#[derive(Default)]
pub struct Guests {
    /// Guests; those that run now are taken out.
    pub(crate) all: Vec<RoleGuest>,
    /// Number of guests, including those taken out.
    pub(crate) count: usize,
    last_role: u32,
}

impl Guests {
    /// True if there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a guest, and begins it in the ring of its thread.
    pub fn add(&mut self, ring: &mut ReactorRing, guest: Box<dyn GuestReactor>) {
        self.last_role = self.last_role.wrapping_add(1).max(1);
        let mut added = RoleGuest { role: RingRole(self.last_role), guest };
        added.call(ring, |guest, ring| guest.begin(ring));
        self.all.push(added);
        self.count += 1;
    }
}
