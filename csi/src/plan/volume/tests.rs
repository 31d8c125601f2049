//! Each planner is run against a model of a target: after every step, killed or not, it comes to the same end.

use super::*;

const GIB: u64 = 1 << 30;

fn uuid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

/// Does a step as a target would; returns true at the end.
fn apply(lvols: &mut Vec<Lvol>, step: &CreateStep, desired: &DesiredVolume<'_>) -> bool {
    let new = |name: &str, bytes| Lvol {
        uuid: uuid(lvols.len() + 100),
        name: name.to_owned(),
        store: "vols".into(),
        bytes,
        is_thin: desired.is_thin,
        ..Lvol::default()
    };
    let bytes_of = |uuid: &str| lvols.iter().find(|lvol| lvol.uuid == uuid).unwrap().bytes;
    match step {
        CreateStep::Create { name } => lvols.push(new(name, desired.bytes)),
        CreateStep::SnapshotSource { source, name } => {
            lvols.push(Lvol { is_snapshot: true, ..new(name, bytes_of(source)) });
        }
        CreateStep::Clone { snapshot, name } => {
            lvols.push(Lvol { is_thin: true, is_clone: true, ..new(name, bytes_of(snapshot)) });
        }
        CreateStep::Resize { uuid } => {
            lvols.iter_mut().find(|lvol| lvol.uuid == *uuid).unwrap().bytes = desired.bytes;
        }
        CreateStep::Inflate { uuid } => {
            let lvol = lvols.iter_mut().find(|lvol| lvol.uuid == *uuid).unwrap();
            (lvol.is_thin, lvol.is_clone) = (false, false);
        }
        CreateStep::DeleteCopySnapshot { uuid } => lvols.retain(|lvol| lvol.uuid != *uuid),
        CreateStep::Done(_) => return true,
    }
    false
}

/// Runs to the end; returns the names of the steps.
fn run(lvols: &mut Vec<Lvol>, desired: &DesiredVolume<'_>) -> Vec<String> {
    let mut steps = Vec::new();
    for _ in 0..10 {
        let step = next_create_step(lvols, desired).unwrap();
        let done = apply(lvols, &step, desired);
        steps.push(format!("{step:?}").split([' ', '(']).next().unwrap().to_owned());
        if done {
            return steps;
        }
    }
    panic!("no end: {steps:?}");
}

fn desired<'a>(source: Option<VolumeSource<'a>>) -> DesiredVolume<'a> {
    DesiredVolume {
        csi_name: "pvc-2",
        bytes: 2 * GIB,
        bytes_max: 0,
        store: None,
        is_thin: true,
        source,
    }
}

/// A volume and a snapshot of it.
fn present() -> Vec<Lvol> {
    let volume = Lvol {
        uuid: uuid(1),
        name: names::volume("pvc-1", None),
        store: "vols".into(),
        bytes: GIB,
        ..Lvol::default()
    };
    let name = names::snapshot("snap-1", &volume.uuid);
    let snapshot = Lvol { uuid: uuid(2), name, is_snapshot: true, ..volume.clone() };
    vec![volume, snapshot]
}

#[test]
fn steps_of_a_volume() {
    let (one, two) = (uuid(1), uuid(2));
    let (volume, snapshot) = (VolumeSource::Volume(&one), VolumeSource::Snapshot(&two));
    assert_eq!(run(&mut present(), &desired(None)), ["Create", "Done"]);
    assert_eq!(run(&mut present(), &desired(Some(snapshot))), ["Clone", "Resize", "Done"]);
    let mut lvols = present();
    let steps = ["SnapshotSource", "Clone", "Resize", "DeleteCopySnapshot", "Done"];
    assert_eq!(run(&mut lvols, &desired(Some(volume))), steps);
    assert_eq!(lvols.len(), 3, "the snapshot of the copy is gone");
    assert_eq!(run(&mut lvols, &desired(Some(volume))), ["Done"]);
    let thick = DesiredVolume { is_thin: false, bytes: GIB, ..desired(Some(snapshot)) };
    assert_eq!(run(&mut present(), &thick), ["Clone", "Inflate", "Done"]);
}

#[test]
fn what_exists_and_differs_is_refused() {
    let (one, two) = (uuid(1), uuid(2));
    let mut lvols = present();
    run(&mut lvols, &desired(None));
    let refused = |desired: DesiredVolume<'_>| next_create_step(&lvols, &desired).unwrap_err();
    let exists =
        |refusal: PlanRefusal| assert!(matches!(refusal, PlanRefusal::Exists(_)), "{refusal:?}");
    exists(refused(DesiredVolume { bytes: 3 * GIB, ..desired(None) }));
    exists(refused(DesiredVolume { bytes: GIB, bytes_max: GIB, ..desired(None) }));
    exists(refused(DesiredVolume { store: Some("other"), ..desired(None) }));
    exists(refused(desired(Some(VolumeSource::Snapshot(&two)))));
    let absent = uuid(9);
    let other = |source| DesiredVolume { csi_name: "pvc-3", ..desired(Some(source)) };
    for source in [
        VolumeSource::Snapshot(&absent),
        VolumeSource::Volume(&absent),
        VolumeSource::Snapshot(&one),
        VolumeSource::Volume(&two),
    ] {
        assert!(matches!(refused(other(source)), PlanRefusal::NoSource(_)), "{source:?}");
    }
    let small = DesiredVolume { bytes: GIB / 2, ..other(VolumeSource::Volume(&one)) };
    assert!(matches!(refused(small), PlanRefusal::Size(_)));
    let elsewhere = DesiredVolume { store: Some("other"), ..other(VolumeSource::Volume(&one)) };
    assert!(matches!(refused(elsewhere), PlanRefusal::Invalid(_)));
}

#[test]
fn steps_of_a_snapshot() {
    let lvols = present();
    let (one, two) = (uuid(1), uuid(2));
    assert_eq!(
        next_snapshot_step(&lvols, "snap-1", &one),
        Ok(SnapshotStep::Done(lvols[1].clone()))
    );
    let name = names::snapshot("snap-2", &one);
    assert_eq!(next_snapshot_step(&lvols, "snap-2", &one), Ok(SnapshotStep::Create { name }));
    let other = next_snapshot_step(&lvols, "snap-1", &two).unwrap_err();
    assert!(matches!(other, PlanRefusal::Exists(_)));
    for source in [&two, &uuid(9)] {
        let none = next_snapshot_step(&lvols, "snap-3", source).unwrap_err();
        assert!(matches!(none, PlanRefusal::NoSource(_)));
    }
}

#[test]
fn sizes_are_whole_clusters() {
    assert_eq!(whole_clusters(1, 0), Ok(4 << 20));
    assert_eq!(whole_clusters(0, 4 << 20), Ok(4 << 20));
    assert_eq!(whole_clusters(GIB, GIB), Ok(GIB));
    for (bytes, bytes_max) in [(1, 1), (GIB + 1, GIB + 2), (u64::MAX, 0), (i64::MAX as u64, 0)] {
        assert!(matches!(whole_clusters(bytes, bytes_max), Err(PlanRefusal::Size(_))), "{bytes}");
    }
}
