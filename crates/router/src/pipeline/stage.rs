//! The stages of the pipeline, so that whoever has a clock can say where a packet's time goes.

/// A stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// Headers are read and checked.
    Parse,
    /// Filters are matched.
    Classify,
    /// The route is looked up.
    LookUp,
    /// What becomes of the packet is decided, and its headers are rewritten.
    Rewrite,
    /// It enters its virtual output queue.
    VirtualQueue,
    /// Backlogs are announced, rates computed, credit granted.
    Distribute,
    /// It leaves its virtual output queue and enters and leaves its output's discipline.
    Discipline,
    /// Between the stages.
    Elsewhere,
}

impl Stage {
    /// Every stage but [`Stage::Elsewhere`], in the order of a packet's way.
    pub const ALL: [Stage; 7] = [
        Stage::Parse,
        Stage::Classify,
        Stage::LookUp,
        Stage::Rewrite,
        Stage::VirtualQueue,
        Stage::Distribute,
        Stage::Discipline,
    ];

    /// The name that files and scripts use.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Parse => "parse",
            Stage::Classify => "classify",
            Stage::LookUp => "look_up",
            Stage::Rewrite => "rewrite",
            Stage::VirtualQueue => "virtual_queue",
            Stage::Distribute => "distribute",
            Stage::Discipline => "discipline",
            Stage::Elsewhere => "elsewhere",
        }
    }
}

/// Is told when a stage begins; what was before it has ended.
pub trait Probe {
    /// `stage` begins.
    fn enter(&mut self, stage: Stage);
}

/// Nobody asks.
impl Probe for () {
    #[inline(always)]
    fn enter(&mut self, _stage: Stage) {}
}
