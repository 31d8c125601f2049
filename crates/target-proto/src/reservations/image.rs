//! Text format of persistent reservations, in a file beside a store.
//!
//! ```text
//! roadtrain-reservations 1
//! namespace 0123456789abcdef0123456789abcdef
//! generation 4
//! persists yes
//! reservation 3 00112233445566778899aabbccddeeff
//! registrant 00112233445566778899aabbccddeeff 0x1
//! crc32c 1a2b3c4d
//! ```
//!
//! `namespace` is the NGUID. A reservation that all registrants hold has `all` as its holder. The last line has the
//! checksum of all others.

use super::state::{HostId, REGISTRANTS_MAX, Registrant, Reservation, ReservationState};
use crate::image::{ImageError, open, seal};
use core::fmt::Write;
use roadtrain_wire::reservation::ReservationType;

const HEAD: &str = "roadtrain-reservations 1";
const ALL: &str = "all";

impl ReservationState {
    /// Returns the persistent part, for the namespace with that NGUID.
    #[must_use]
    pub fn image(&self, nguid: &[u8; 16]) -> Vec<u8> {
        if self.persists {
            self.whole_image(nguid)
        } else {
            ReservationState::default().whole_image(nguid)
        }
    }

    /// Returns the whole state, for a process that takes over the namespace.
    #[must_use]
    pub fn whole_image(&self, nguid: &[u8; 16]) -> Vec<u8> {
        let mut text = format!("{HEAD}\nnamespace {:032x}\n", u128::from_be_bytes(*nguid));
        let persists = if self.persists { "yes" } else { "no" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "generation {}\npersists {persists}", self.generation);
        if let Some(Reservation { kind, holder }) = self.reservation {
            let holder = holder.map_or(ALL.into(), |host| hex(&host));
            let _ = writeln!(text, "reservation {} {holder}", kind.emit());
        }
        for Registrant { host, key } in &self.registrants {
            let _ = writeln!(text, "registrant {} {key:#x}", hex(host));
        }
        seal(text)
    }

    /// True if the persistent part of both is the same.
    #[must_use]
    pub(super) fn persists_as(&self, other: &ReservationState) -> bool {
        !self.persists && !other.persists || self == other
    }
}

/// Parses a file. Returns the NGUID of the namespace, and the persistent state.
///
/// # Errors
/// The content is invalid.
pub fn parse(image: &[u8]) -> Result<([u8; 16], ReservationState), ImageError> {
    let (mut nguid, mut state) = (None, ReservationState::default());
    open(image, HEAD, |words| match *words {
        ["namespace", id] => unhex(id).map(|id| nguid = Some(id)),
        ["generation", count] => count.parse().ok().map(|count| state.generation = count),
        ["persists", persists @ ("yes" | "no")] => {
            state.persists = persists == "yes";
            Some(())
        }
        ["reservation", kind, holder] => reservation(kind, holder).map(|reservation| {
            state.reservation = Some(reservation);
        }),
        ["registrant", host, key] => registrant(host, key).map(|registrant| {
            state.registrants.push(registrant);
        }),
        _ => None,
    })?;
    check_state(&state)?;
    Ok((nguid.ok_or(ImageError::Impossible("it names no namespace"))?, state))
}

fn check_state(state: &ReservationState) -> Result<(), ImageError> {
    let is_twice = |(at, registrant): (usize, &Registrant)| {
        state.registrants[..at].iter().any(|other| other.host == registrant.host)
    };
    if state.registrants.len() > REGISTRANTS_MAX
        || state.registrants.iter().enumerate().any(is_twice)
    {
        return Err(ImageError::Impossible("it has too many registrants, or one twice"));
    }
    let Some(Reservation { kind, holder }) = state.reservation else { return Ok(()) };
    let is_held = match holder {
        Some(holder) => state.key(&holder).is_some() && !kind.is_held_by_all(),
        None => kind.is_held_by_all() && !state.registrants.is_empty(),
    };
    if is_held { Ok(()) } else { Err(ImageError::Impossible("its reservation has no holder")) }
}

fn reservation(kind: &str, holder: &str) -> Option<Reservation> {
    let kind = ReservationType::parse(kind.parse().ok()?)?;
    let holder = if holder == ALL { None } else { Some(unhex(holder)?) };
    Some(Reservation { kind, holder })
}

fn registrant(host: &str, key: &str) -> Option<Registrant> {
    let key = u64::from_str_radix(key.strip_prefix("0x")?, 16).ok()?;
    Some(Registrant { host: unhex(host)?, key })
}

fn hex(id: &HostId) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> ReservationState {
        let registrant = |number: u8| Registrant { host: [number; 16], key: number.into() };
        let kind = ReservationType::WriteExclusiveRegistrantsOnly;
        ReservationState {
            generation: 7,
            persists: true,
            registrants: vec![registrant(1), registrant(2)],
            reservation: Some(Reservation { kind, holder: Some([2; 16]) }),
        }
    }

    #[test]
    fn what_persists_comes_back() {
        let state = state();
        assert_eq!(parse(&state.image(&[9; 16])), Ok(([9; 16], state.clone())));
        let kind = ReservationType::ExclusiveAccessAllRegistrants;
        let all = ReservationState {
            reservation: Some(Reservation { kind, holder: None }),
            ..state.clone()
        };
        assert_eq!(parse(&all.image(&[9; 16])), Ok(([9; 16], all)));
        let not = ReservationState { persists: false, ..state };
        assert_eq!(parse(&not.image(&[9; 16])), Ok(([9; 16], ReservationState::default())));
        assert_eq!(parse(&not.whole_image(&[9; 16])), Ok(([9; 16], not)));
    }

    #[test]
    fn as_many_registrants_as_there_may_be_come_back() {
        let registrant =
            |number: usize| Registrant { host: (number as u128).to_be_bytes(), key: 1 };
        let of = |count| ReservationState {
            registrants: (0..count).map(registrant).collect(),
            reservation: None,
            ..state()
        };
        let full = of(REGISTRANTS_MAX);
        assert_eq!(parse(&full.image(&[9; 16])), Ok(([9; 16], full)));
        assert!(parse(&of(REGISTRANTS_MAX + 1).image(&[9; 16])).is_err());
    }

    #[test]
    fn damage_anywhere_is_seen() {
        let image = state().image(&[9; 16]);
        for at in 0..image.len() {
            let mut damaged = image.clone();
            damaged[at] ^= 1;
            assert!(parse(&damaged).is_err(), "byte {at}");
            assert!(parse(&image[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let sealed = |body: &str| seal(format!("{HEAD}\n{body}"));
        let id = "00112233445566778899aabbccddeeff";
        for body in [
            format!("namespace {id}\nreservation 1 {id}\n"),
            format!("namespace {id}\nreservation 5 all\n"),
            format!("namespace {id}\nregistrant {id} 0x1\nregistrant {id} 0x2\n"),
            format!("namespace {id}\nregistrant {id} 0x1\nreservation 5 {id}\n"),
            format!("namespace {id}\nreservation 7 {id}\n"),
            format!("namespace {id}\nregistrant {id} 1\n"),
            format!("namespace {id}\nsomething else\n"),
            "generation 1\n".into(),
        ] {
            assert!(parse(&sealed(&body)).is_err(), "{body}");
        }
        assert_eq!(parse(b"roadtrain-reservations 2\n"), Err(ImageError::Head(HEAD)));
    }
}
