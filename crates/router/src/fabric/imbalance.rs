//! The fabric's balance detects packets that vanish or appear from nowhere.

use nilometer_queue::aal5::Framing;
use nilometer_queue::distributed::SwitchShape;
use nilometer_queue::voq::InputLimits;
use nilometer_queue::{Any, Capacity, DisciplineKind, Settings, Sharing};
use nilometer_wire::{Rate, Span, Time};

use super::{Fabric, FabricPlan, MemoryLimits};
use crate::memory::{Place, Ticket};

const RATE: Rate = Rate::from_megabits(10);

/// Three ports, and packets that wait at an input, at an output, and at the output's device.
fn filled() -> Fabric<Ticket> {
    let shape = SwitchShape::new(3, 2.0, RATE, Span::from_nanos(500_000)).expect("a shape");
    let sharing = Sharing::default();
    let input = InputLimits { packets: 90, packet_bytes: 1_500, sharing, framing: Framing::Whole };
    let memory = Some(MemoryLimits { packets: 300, sharing });
    let plan = FabricPlan { shape, variant: None, input, memory };
    let settings = Settings::new(DisciplineKind::TailDrop, Capacity::Packets(50), RATE);
    let outputs = (0..3).map(|_| Any::new(&settings).expect("settings")).collect();
    let mut fabric = Fabric::new(plan, outputs).expect("a fabric");
    let mut drops = alloc::vec::Vec::new();
    for number in 0..30 {
        let place = Place { buffer: number, offset: 0, bytes: 700 };
        let packet = Ticket { place, flow: 1, link_bytes: 700, bits: 0 };
        fabric.enqueue(Time::ZERO, (0, number as usize % 3), packet, &mut drops);
    }
    fabric.advance(Time::ZERO, &mut drops);
    for _ in 0..4 {
        fabric.transmit(Time::ZERO, 1, &mut drops).expect("it waits");
    }
    fabric.set_sending(1, 2);
    fabric
}

#[test]
fn one_packet_more_or_less_is_an_imbalance() {
    assert!(filled().balances());
    let spoil: [fn(&mut Fabric<Ticket>); 9] = [
        |fabric| fabric.inputs[0].ledger.in_packets += 1,
        |fabric| fabric.inputs[2].ledger.in_bytes += 1,
        |fabric| fabric.inputs[0].ledger.out_packets -= 1,
        |fabric| fabric.outputs[1].ledger.out_packets += 1,
        |fabric| fabric.outputs[2].ledger.in_packets += 1,
        |fabric| fabric.outputs[0].ledger.in_bytes -= 1,
        // As many came over as left, and one output has lost one.
        |fabric| {
            fabric.outputs[0].ledger.in_packets += 1;
            fabric.outputs[1].ledger.in_packets -= 1;
        },
        // All ledgers agree with each other, and the queues do not.
        |fabric| {
            fabric.inputs[0].ledger.out_packets += 1;
            fabric.inputs[0].ledger.in_packets += 1;
            fabric.outputs[0].ledger.in_packets += 1;
        },
        // The memory counts one that is not there.
        |fabric| fabric.pool.as_mut().expect("a memory").admit(0, false).expect("room"),
    ];
    for (number, spoil) in spoil.into_iter().enumerate() {
        let mut fabric = filled();
        spoil(&mut fabric);
        assert!(!fabric.balances(), "{number}");
    }
    // Packets still at a device are not lost: the memory counts them.
    let mut fabric = filled();
    fabric.set_sending(2, 1);
    assert!(fabric.balances());
}
