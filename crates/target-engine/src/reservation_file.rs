//! Files of reservations that persist through power loss.

use super::kept_file::{KeptFileKind, KeptPlace};
use roadtrain_store::{OpenError, StoreSpec};
use roadtrain_target_proto::reservations::{ReservationState, parse_image};
use std::path::{Path, PathBuf};
use tracing::{info, warn};

const KIND: KeptFileKind = KeptFileKind {
    suffix: ".reservations",
    without: "reservations do not persist through power loss",
    actions: ["keep reservations in", "read the reservations in", "use the reservations in"],
    advice: "remove it to begin without reservations",
};

/// Reservations of a namespace, and the file that keeps them.
#[derive(Clone, Debug)]
pub(super) struct KeptReservations {
    pub(super) path: PathBuf,
    pub(super) state: ReservationState,
}

impl KeptReservations {
    /// Returns the path for a namespace with this store. A read-only file has no reservations next to it.
    pub(super) fn path(place: &KeptPlace, spec: Option<&StoreSpec>) -> Option<PathBuf> {
        place.path(written(spec), &KIND)
    }

    /// Reads the reservations of the namespace with that NGUID; `None` if they are not kept.
    ///
    /// # Errors
    ///
    /// The file exists and cannot be read or written, is damaged, or was configured and cannot be created.
    pub(super) fn open(
        place: &KeptPlace,
        spec: Option<&StoreSpec>,
        nguid: &[u8; 16],
    ) -> Result<Option<KeptReservations>, OpenError> {
        let path = place.writable(written(spec), &KIND)?;
        path.map(|path| Ok(KeptReservations { state: read(&path, nguid)?, path })).transpose()
    }
}

fn written(spec: Option<&StoreSpec>) -> Option<&StoreSpec> {
    spec.filter(|spec| !spec.read_only)
}

fn read(path: &Path, nguid: &[u8; 16]) -> Result<ReservationState, OpenError> {
    match KIND.read(path, parse_image)? {
        None => Ok(ReservationState::default()),
        Some((of, state)) if of == *nguid => {
            if let (Some(_), count) = (state.reservation, state.registrants.len()) {
                info!(path = %path.display(), registrants = count, "a reservation is held");
            }
            Ok(state)
        }
        Some((of, _)) => {
            let of = u128::from_be_bytes(of);
            warn!(path = %path.display(), "it has the reservations of another namespace (NGUID {of:032x}), which are not used");
            Ok(ReservationState::default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_file::write;
    use roadtrain_store::StoreKind;
    use roadtrain_target_proto::reservations::Registrant;
    use std::fs;

    fn state() -> ReservationState {
        let registrants = vec![Registrant { host: [1; 16], key: 5 }];
        ReservationState { generation: 1, persists: true, registrants, reservation: None }
    }

    #[test]
    fn what_was_written_is_read_by_its_namespace_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let kind = StoreKind::File { path, size: None, create: false };
        let spec = StoreSpec { kind, lba_bytes: 512, read_only: false };
        let open = |nguid| {
            KeptReservations::open(&KeptPlace::NextToStore, Some(&spec), &[nguid; 16]).unwrap()
        };
        let kept = open(7).unwrap();
        assert_eq!(kept.state, ReservationState::default());
        assert_eq!(kept.path, folder.path().join("disk.img.reservations"));
        write(&kept.path, &state().image(&[7; 16])).unwrap();
        assert_eq!(open(7).unwrap().state, state());
        assert_eq!(open(8).unwrap().state, ReservationState::default());
        let read_only = StoreSpec { read_only: true, ..spec.clone() };
        assert!(
            KeptReservations::open(&KeptPlace::NextToStore, Some(&read_only), &[7; 16])
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_damaged_file_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let mut image = state().image(&[7; 16]);
        image[40] ^= 1;
        fs::write(&path, image).unwrap();
        let error =
            KeptReservations::open(&KeptPlace::File(path.clone()), None, &[7; 16]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains("damaged"), "{text}");
    }
}
