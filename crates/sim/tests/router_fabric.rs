//! The live router's fabric, driven by hand through the paper's stress test, against the switch in
//! exact time: the same stages within 3 %, the same rates within 5 %.

use nilometer_queue::distributed::Variant;
use nilometer_queue::{Any, Capacity, DisciplineKind, Packet, Settings};
use nilometer_router::fabric::{Fabric, FabricPlan};
use nilometer_sim::overload::Load;
use nilometer_sim::stress::{StressLoad, StressPlan, run};
use nilometer_wire::{Ecn, Span, Time};

#[derive(Clone, Copy)]
struct Cargo(u32);

impl Packet for Cargo {
    fn bytes(&self) -> u32 {
        self.0
    }
    fn flow(&self) -> u32 {
        0
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotCapable
    }
    fn mark(&mut self) {}
}

/// A driver that runs every `pass`: what arrived since goes in, what may leave goes out.
struct Driver {
    plan: StressPlan,
    fabric: Fabric<Cargo>,
    aims: Vec<Option<u32>>,
    /// When each source's next packet has wholly arrived.
    next: Vec<Time>,
    seen: u64,
    /// Rates of input 1, bits per second, at each broadcast.
    rates: Vec<Vec<f64>>,
}

impl Driver {
    fn new(plan: StressPlan, variant: Variant) -> Driver {
        let shape = plan.switch(variant).expect("a switch").fabric;
        let input = plan.switch(variant).expect("a switch").input;
        let capacity = Capacity::Packets(10_000_000);
        let settings = Settings::new(DisciplineKind::TailDrop, capacity, plan.link);
        let outputs = (0..plan.ports).map(|_| Any::new(&settings).expect("tail drop")).collect();
        let plan_of = FabricPlan { shape, variant: Some(variant), input, memory: None };
        let mut fabric = Fabric::new(plan_of, outputs).expect("a fabric");
        for output in 0..plan.ports {
            fabric.set_rate(output, Some(plan.link));
        }
        Driver {
            plan,
            fabric,
            aims: vec![None; plan.ports],
            next: vec![Time::ZERO; plan.ports],
            seen: 0,
            rates: Vec::new(),
        }
    }

    /// Runs until the load ends it.
    fn drive(&mut self, load: &mut StressLoad, pass: Span) {
        let mut now = Time::ZERO;
        let mut drops = Vec::new();
        for _ in 0..5_000_000 {
            now += pass;
            for source in 0..self.plan.ports {
                self.arrive(now, source, &mut drops);
            }
            self.fabric.advance(now, &mut drops);
            for output in 0..self.plan.ports {
                while self.fabric.transmit(now, output, &mut drops).is_some() {}
            }
            assert!(drops.is_empty());
            if self.fabric.updates() > self.seen {
                self.seen = self.fabric.updates();
                let rates = self.fabric.allocator(0).expect("distributed queueing").rates();
                self.rates.push(rates.to_vec());
                assert!(self.fabric.balances());
                if !load.aim(self.seen - 1, self.fabric.announced(), &mut self.aims) {
                    return;
                }
            }
        }
        panic!("the load never ended");
    }

    fn arrive(
        &mut self,
        now: Time,
        source: usize,
        drops: &mut Vec<(nilometer_queue::Reason, Cargo)>,
    ) {
        let took = self.plan.link.span_of(u64::from(self.plan.packet_bytes));
        let Some(output) = self.aims[source] else {
            self.next[source] = now + took;
            return;
        };
        while self.next[source] <= now {
            self.next[source] += took;
            let cargo = Cargo(self.plan.packet_bytes);
            self.fabric.enqueue(now, (source, output as usize), cargo, drops);
        }
    }
}

#[test]
fn the_live_fabric_plays_table_4_as_the_simulator_does() {
    let plan = StressPlan::default();
    for variant in plan.variants() {
        let simulated = run(&plan, variant).expect("a run");
        for pass_ns in [10_000, 70_000, 200_000] {
            let mut load = plan.load().expect("a load");
            let mut driver = Driver::new(plan, variant);
            driver.drive(&mut load, Span::from_nanos(pass_ns));
            let ends = load.ends();
            assert_eq!(ends.len(), simulated.stages.len());
            for (live, exact) in ends.iter().zip(&simulated.stages) {
                let apart = (*live as f64 / *exact as f64 - 1.0).abs();
                assert!(apart <= 0.03, "{}: {ends:?}, {:?}", simulated.name, simulated.stages);
            }
            let idle = driver.rates[400][plan.ports - 1] / 1e6;
            let apart = (idle - simulated.idle_voq_mbps).abs();
            assert!(apart <= 0.05 * simulated.idle_voq_mbps + 1e-9, "{idle} Mb/s when idle");
            let before = &driver.rates[50..400];
            let mean = before.iter().map(|rates| rates[0]).sum::<f64>() / before.len() as f64 / 1e6;
            assert!((mean / 35.0 - 1.0).abs() < 0.05, "{mean} Mb/s before T1");
        }
    }
}
