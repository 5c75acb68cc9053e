//! What is remembered of a reduction of the window while it may yet be taken back.

/// Where F-RTO stands (RFC 5682, 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is in question.
    #[default]
    Off,
    /// The first segment was sent again; its acknowledgement is awaited (step 2).
    First,
    /// New data was sent; the next acknowledgement decides (step 3).
    Second,
}

/// What is remembered of an episode to be able to take it back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubt {
    /// Timestamp of the first segment sent again: the Eifel detection compares with it (RFC 3522).
    pub stamp: Option<u32>,
    /// Bytes sent again that the receiver did not report as duplicates (RFC 3708).
    pub unexplained: u64,
    /// `una` when it began.
    pub start: u64,
    /// Once this is acknowledged no more signs are awaited.
    pub until: u64,
    /// The bound of its marks (`Sender::reduced_until`) when it began.
    pub reduced_until: u64,
    /// Whether an earlier reduction, which stands, was still to be signalled to the peer (CWR) when it began.
    pub had_to_tell: bool,
    pub step: Step,
    /// Whether originals were reported that had not been sent again.
    pub saw_original: bool,
}
