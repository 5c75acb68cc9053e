//! The stages of the pipeline, so that a caller with a clock can measure where a packet's time goes.

nilometer_wire::named! {
    /// A stage.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Stage {
        /// Headers are read and checked.
        Parse = "parse",
        /// Filters are matched.
        Classify = "classify",
        /// The route is looked up.
        LookUp = "look_up",
        /// What becomes of the packet is decided, and its headers are rewritten.
        Rewrite = "rewrite",
        /// It enters its virtual output queue.
        VirtualQueue = "virtual_queue",
        /// Backlogs are announced, rates computed, credit granted.
        Distribute = "distribute",
        /// It leaves its virtual output queue and enters and leaves its output's discipline.
        Discipline = "discipline",
        /// Between the stages.
        Elsewhere = "elsewhere",
    }
}

/// Called when a stage begins; the stage before it has ended.
pub trait Probe {
    /// `stage` begins.
    fn enter(&mut self, stage: Stage);
}

/// No stage is timed.
impl Probe for () {
    #[inline(always)]
    fn enter(&mut self, _stage: Stage) {}
}
