//! All settings of a discipline, in one plain structure.

use nilometer_wire::Rate;

use crate::blue::BlueOptions;
use crate::capacity::Capacity;
use crate::codel::CoDelOptions;
use crate::fifos::End;
use crate::fq_codel::FqCoDelOptions;
use crate::hashing::Hashing;
use crate::pie::PieOptions;
use crate::qsdrr::QsdrrOptions;
use crate::red::RedOptions;
use crate::tdrr::TdrrOptions;

pub use crate::settings_error::SettingsError;

nilometer_wire::named! {
    /// Every discipline there is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum DisciplineKind {
        /// First come, first served; a packet that finds the buffer full is dropped.
        TailDrop = "tail_drop",
        /// Random early detection (Floyd and Jacobson 1993).
        Red = "red",
        /// Blue (Feng and others 1999).
        Blue = "blue",
        /// Deficit round robin with longest-queue drop.
        Drr = "drr",
        /// Deficit round robin that drops from the queue of highest throughput.
        Tdrr = "tdrr",
        /// Queue State DRR: drops from one queue until it is the smallest.
        Qsdrr = "qsdrr",
        /// Controlled delay (RFC 8289).
        CoDel = "codel",
        /// Flow queues under CoDel (RFC 8290).
        FqCoDel = "fq_codel",
        /// Proportional integral controller enhanced (RFC 8033).
        Pie = "pie",
    }
}

/// The settings with which a discipline is made. Those that do not concern its kind are ignored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Which discipline.
    pub kind: DisciplineKind,
    /// What its queues hold together.
    pub capacity: Capacity,
    /// How many queues DRR, TDRR and QSDRR have, 1 to
    /// [`MOST_QUEUES`](crate::round_robin::MOST_QUEUES).
    pub queues: u32,
    /// How they spread flows over their queues.
    pub hashing: Hashing,
    /// The largest packet of the link, 1 to
    /// [`LARGEST_MTU_BYTES`](crate::round_robin::LARGEST_MTU_BYTES); one that is larger is dropped as
    /// too big, whatever the discipline. The quantum of the DRR kinds at weight 1.
    pub mtu_bytes: u32,
    /// The link's rate, by which RED and Blue compute since when the link has been idle.
    pub rate: Rate,
    /// Seed of the run. It decides what is left to chance, and [`Hashing::Mixed`].
    pub seed: u64,
    /// Which of the run's queues this is: queues of one seed draw from different streams.
    pub index: u64,
    /// RED's own.
    pub red: RedOptions,
    /// Blue's own.
    pub blue: BlueOptions,
    /// Which end of the longest queue DRR drops from.
    pub drr_drop_from: End,
    /// TDRR's own.
    pub tdrr: TdrrOptions,
    /// QSDRR's own.
    pub qsdrr: QsdrrOptions,
    /// CoDel's own.
    pub codel: CoDelOptions,
    /// FQ-CoDel's own.
    pub fq_codel: FqCoDelOptions,
    /// PIE's own.
    pub pie: PieOptions,
}

impl Settings {
    /// A discipline of `kind` that holds `capacity` before a link of `rate`, all else as usual: 1,024
    /// queues, an MTU of 1,500 bytes, seed 0, and the defaults of each discipline.
    pub fn new(kind: DisciplineKind, capacity: Capacity, rate: Rate) -> Settings {
        Settings {
            kind,
            capacity,
            queues: 1_024,
            hashing: Hashing::Direct,
            mtu_bytes: 1_500,
            rate,
            seed: 0,
            index: 0,
            red: RedOptions::default(),
            blue: BlueOptions::default(),
            drr_drop_from: End::Front,
            tdrr: TdrrOptions::default(),
            qsdrr: QsdrrOptions::default(),
            codel: CoDelOptions::default(),
            fq_codel: FqCoDelOptions::default(),
            pie: PieOptions::default(),
        }
    }
}
