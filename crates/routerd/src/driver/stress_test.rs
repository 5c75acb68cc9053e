//! The stress test that a driver runs beside its ports: started, inspected, ended.

use super::Driver;
use crate::stress::Stress;

impl Driver {
    /// Plays `stress` from now on; whether none is being played.
    pub fn set_stress(&mut self, stress: Stress) -> bool {
        let is_free = self.stress.as_ref().is_none_or(|stress| stress.view().is_over);
        if is_free {
            self.stress = Some(Box::new(stress));
        }
        is_free
    }

    /// The stress test that was begun last.
    pub fn stress(&self) -> Option<&Stress> {
        self.stress.as_deref()
    }

    /// Ends the stress test that was begun last, if it is not over.
    pub fn end_stress(&mut self) {
        if let Some(stress) = &mut self.stress {
            stress.end();
        }
    }
}
