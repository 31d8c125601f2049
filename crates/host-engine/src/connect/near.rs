//! Connections whose packets are processed on a lane's core.
//!
//! The core depends on the connection's ports: a network card selects the queue by them. On loopback it is the sender's
//! core, so the caller connects from the lane's core.

use std::io;

/// Maximum number of connections to try.
const TRIES: usize = 8;
/// Number of connections on the same core after which no other core is expected.
const SAME: usize = 4;

/// Returns the first connection that `connect` makes whose packets are processed on `core`, or the first of all if
/// there is none. Each comes with the core that processes its packets, if known. The others are dropped.
///
/// # Errors
/// No connection can be made.
pub(super) fn connect_near<C>(
    core: Option<usize>,
    mut connect: impl FnMut() -> io::Result<(C, Option<usize>)>,
) -> io::Result<C> {
    let Some(core) = core else { return connect().map(|(connection, _)| connection) };
    let (first, seen) = connect()?;
    let mut others = 0;
    for made in 1..TRIES {
        if others == 0 && (seen.is_none() || seen == Some(core) || made == SAME) {
            break;
        }
        // A later failure does not affect the first connection.
        let Ok((next, at)) = connect() else { break };
        if at == Some(core) {
            return Ok(next);
        }
        others += usize::from(at != seen);
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of the connections on these cores is taken, and how many were made.
    fn taken(wanted: Option<usize>, cores: &[Option<usize>]) -> (usize, usize) {
        let mut made = 0;
        let connection = connect_near(wanted, || {
            let core = *cores.get(made).ok_or(io::ErrorKind::ConnectionRefused)?;
            made += 1;
            Ok((made - 1, core))
        });
        (connection.unwrap(), made)
    }

    #[test]
    fn the_first_on_the_core_is_taken() {
        assert_eq!(taken(Some(0), &[Some(0)]), (0, 1));
        assert_eq!(taken(Some(0), &[Some(3), Some(2), Some(0), Some(0)]), (2, 3));
    }

    #[test]
    fn none_on_the_core_means_the_first() {
        assert_eq!(taken(Some(0), &[Some(3); 20]), (0, SAME), "there is only one core");
        let cores: Vec<_> = (1..20).map(Some).collect();
        assert_eq!(taken(Some(0), &cores), (0, TRIES));
        assert_eq!(taken(Some(0), &[Some(1), Some(2)]), (0, 2), "no more can be made");
    }

    #[test]
    fn who_does_not_care_or_cannot_know_takes_the_first() {
        assert_eq!(taken(None, &[Some(3), Some(0)]), (0, 1));
        assert_eq!(taken(Some(0), &[None, Some(0)]), (0, 1));
    }

    #[test]
    fn without_any_it_is_an_error() {
        let none = |core| connect_near(core, || Err::<((), _), _>(io::ErrorKind::TimedOut.into()));
        assert!(none(None).is_err() && none(Some(0)).is_err());
    }
}
