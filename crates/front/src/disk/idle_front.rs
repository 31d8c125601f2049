//! Front of a reactor without anything to serve.

use roadtrain_host_engine::{Front, FrontTurn};

/// Waits for the reactor's end; for a controller whose attachment fails or has not begun.
pub(crate) struct IdleFront;

impl Front for IdleFront {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        while turn.next_completion().is_some() {}
        if turn.stopping() {
            turn.stop();
        }
    }
}
