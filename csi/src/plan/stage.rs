//! Steps that bring a volume to a node and to a pod, and back.

/// Number of a block device: major, minor.
pub(crate) type DeviceNumber = (u32, u32);

/// Block device of an attached volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockDevice {
    /// Path, such as `/dev/ublkb0`.
    pub(crate) path: String,
    /// Number.
    pub(crate) number: DeviceNumber,
}

/// Attachment of a volume on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    /// There is none.
    No,
    /// It connects.
    Starting,
    /// Its process has died. With `can_be_taken_over` its device lives, and its requests wait.
    Gone {
        /// True if a new process can continue with the device.
        can_be_taken_over: bool,
    },
    /// It can be used.
    Ready(BlockDevice),
}

/// State of a volume on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StageFacts {
    /// Its attachment.
    pub(crate) attached: Attached,
    /// Device of the file system that is mounted at the staging path.
    pub(crate) mounted: Option<DeviceNumber>,
}

/// Next step of staging and unstaging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageStep {
    /// Unmount the staging path; at once, also while it is in use, if `is_dead`: nothing can be written there.
    Unmount {
        /// True if its device is gone.
        is_dead: bool,
    },
    /// End the attachment, or remove what a dead one has left.
    Detach,
    /// Attach the volume.
    Attach,
    /// Wait until the attachment is ready or gone.
    Wait,
    /// Check the file system, or make it, and mount it.
    Mount,
    /// Nothing is left to do.
    Done,
}

/// Returns the next step until the volume can be published.
pub(crate) fn next_stage_step(facts: &StageFacts, is_block: bool) -> StageStep {
    match (&facts.attached, facts.mounted) {
        (Attached::Starting, _) => StageStep::Wait,
        (Attached::Gone { can_be_taken_over: true }, _) => StageStep::Attach,
        (Attached::No | Attached::Gone { .. }, Some(_)) => StageStep::Unmount { is_dead: true },
        (Attached::Gone { .. }, None) => StageStep::Detach,
        (Attached::No, None) => StageStep::Attach,
        (Attached::Ready(_), _) if is_block => StageStep::Done,
        (Attached::Ready(device), Some(number)) if device.number == number => StageStep::Done,
        (Attached::Ready(_), Some(_)) => StageStep::Unmount { is_dead: true },
        (Attached::Ready(_), None) => StageStep::Mount,
    }
}

/// Returns the next step until nothing of the volume is on the node.
pub(crate) fn next_unstage_step(facts: &StageFacts) -> StageStep {
    let is_live = match (&facts.attached, facts.mounted) {
        (Attached::Ready(device), Some(number)) => device.number == number,
        (Attached::Gone { can_be_taken_over }, _) => *can_be_taken_over,
        _ => false,
    };
    match (&facts.attached, facts.mounted) {
        // Writes that are cached for the device reach it only when a process has taken it over.
        (Attached::Gone { can_be_taken_over: true }, Some(_)) => StageStep::Attach,
        (_, Some(_)) => StageStep::Unmount { is_dead: !is_live },
        (Attached::No, None) => StageStep::Done,
        (Attached::Starting, None) => StageStep::Wait,
        (Attached::Gone { .. } | Attached::Ready(_), None) => StageStep::Detach,
    }
}

/// Mount at the target path of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublishedMount {
    /// Device of the file system; of a block volume the device itself.
    pub(crate) number: DeviceNumber,
    /// True if it is mounted read-only.
    pub(crate) is_read_only: bool,
}

/// Next step of publishing to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishPathStep {
    /// Unmount what an earlier attachment has left.
    UnmountStale,
    /// Bind-mount the volume.
    Bind,
    /// Make the mount read-only.
    RemountReadOnly,
    /// It is there, but may be written.
    Incompatible,
    /// It is there.
    Done,
}

/// Returns the next step until the volume, whose device is `number`, is at the target path.
pub(crate) fn next_publish_path_step(
    published: Option<PublishedMount>,
    number: DeviceNumber,
    is_read_only: bool,
) -> PublishPathStep {
    match published {
        None => PublishPathStep::Bind,
        Some(mount) if mount.number != number => PublishPathStep::UnmountStale,
        Some(mount) if mount.is_read_only == is_read_only => PublishPathStep::Done,
        Some(_) if is_read_only => PublishPathStep::RemountReadOnly,
        Some(_) => PublishPathStep::Incompatible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(minor: u32) -> BlockDevice {
        BlockDevice { path: format!("/dev/loop{minor}"), number: (7, minor) }
    }

    /// A model of a node: its attachment and mount; a new device gets another number.
    struct Node {
        facts: StageFacts,
        next: u32,
    }

    impl Node {
        fn new(attached: Attached, mounted: Option<DeviceNumber>) -> Node {
            Node { facts: StageFacts { attached, mounted }, next: 5 }
        }

        fn apply(&mut self, step: StageStep) {
            let facts = &mut self.facts;
            match step {
                StageStep::Unmount { .. } => facts.mounted = None,
                StageStep::Detach => {
                    assert_eq!(facts.mounted, None, "a mounted device is detached");
                    facts.attached = Attached::No;
                }
                StageStep::Attach => {
                    let taken_over = facts.mounted.map(|(_, minor)| minor);
                    let minor = taken_over.unwrap_or(self.next);
                    facts.attached = Attached::Ready(device(minor));
                }
                StageStep::Wait => facts.attached = Attached::Ready(device(self.next)),
                StageStep::Mount => {
                    let Attached::Ready(device) = &facts.attached else { panic!("no device") };
                    facts.mounted = Some(device.number);
                }
                StageStep::Done => {}
            }
        }

        fn run(&mut self, next: impl Fn(&StageFacts) -> StageStep) -> Vec<StageStep> {
            let mut steps = Vec::new();
            while steps.last() != Some(&StageStep::Done) {
                let step = next(&self.facts);
                self.apply(step);
                steps.push(step);
                assert!(steps.len() < 10, "no end: {steps:?}");
            }
            steps
        }
    }

    fn all_facts() -> Vec<(Attached, Option<DeviceNumber>)> {
        let attached = [
            Attached::No,
            Attached::Starting,
            Attached::Gone { can_be_taken_over: true },
            Attached::Gone { can_be_taken_over: false },
            Attached::Ready(device(1)),
        ];
        let mounts = [None, Some((7, 1)), Some((7, 2))];
        let pairs = attached.iter().flat_map(|one| mounts.map(|mount| (one.clone(), mount)));
        pairs.collect()
    }

    #[test]
    fn staging_ends_with_a_live_mount_whatever_is_there() {
        for (attached, mounted) in all_facts() {
            let mut node = Node::new(attached.clone(), mounted);
            node.run(|facts| next_stage_step(facts, false));
            let Attached::Ready(device) = &node.facts.attached else { panic!("{attached:?}") };
            assert_eq!(node.facts.mounted, Some(device.number), "{attached:?} {mounted:?}");
        }
        let mut node = Node::new(Attached::No, None);
        let steps = [StageStep::Attach, StageStep::Mount, StageStep::Done];
        assert_eq!(node.run(|facts| next_stage_step(facts, false)), steps);
        let mut node = Node::new(Attached::No, None);
        let steps = [StageStep::Attach, StageStep::Done];
        assert_eq!(node.run(|facts| next_stage_step(facts, true)), steps);
    }

    #[test]
    fn a_device_that_lives_keeps_its_mount() {
        let mut node = Node::new(Attached::Gone { can_be_taken_over: true }, Some((7, 1)));
        let steps = [StageStep::Attach, StageStep::Done];
        assert_eq!(node.run(|facts| next_stage_step(facts, false)), steps);
    }

    #[test]
    fn unstaging_leaves_nothing_whatever_is_there() {
        for (attached, mounted) in all_facts() {
            let mut node = Node::new(attached.clone(), mounted);
            let steps = node.run(next_unstage_step);
            let end = StageFacts { attached: Attached::No, mounted: None };
            assert_eq!(node.facts, end, "{attached:?} {mounted:?}");
            // Mounts of a live device are written back, never dropped.
            let is_live = attached == Attached::Ready(device(1)) && mounted == Some((7, 1));
            assert!(!is_live || steps[0] == StageStep::Unmount { is_dead: false });
        }
    }

    #[test]
    fn paths_of_pods() {
        let mount = |number, is_read_only| Some(PublishedMount { number, is_read_only });
        let step =
            |published, is_read_only| next_publish_path_step(published, (7, 1), is_read_only);
        assert_eq!(step(None, false), PublishPathStep::Bind);
        assert_eq!(step(mount((7, 2), false), false), PublishPathStep::UnmountStale);
        assert_eq!(step(mount((7, 1), false), false), PublishPathStep::Done);
        assert_eq!(step(mount((7, 1), false), true), PublishPathStep::RemountReadOnly);
        assert_eq!(step(mount((7, 1), true), true), PublishPathStep::Done);
        assert_eq!(step(mount((7, 1), true), false), PublishPathStep::Incompatible);
    }
}
