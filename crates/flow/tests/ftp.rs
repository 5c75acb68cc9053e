//! Figure 2 of the Harpoon paper: one FTP transaction, a control and a data connection, is exactly
//! four records, each with the file it carried.

use std::net::SocketAddr;

use nilometer_flow::meter::{Meter, MeterConfig};
use nilometer_flow::{EndReason, FlowRecord};
use nilometer_wire::build::Tcp;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, parse};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PUSH: u8 = 0x08;
const ACK: u8 = 0x10;
const MILLISECOND_NS: u64 = 1_000_000;

/// Two ends of a connection that write packets with correct sequence numbers into a trace.
struct Conversation {
    ends: [SocketAddr; 2],
    next: [u32; 2],
}

/// Stamped IP packets.
#[derive(Default)]
struct Trace {
    packets: Vec<(u64, Vec<u8>)>,
    now_ns: u64,
}

impl Trace {
    fn add(&mut self, packet: Vec<u8>) {
        self.packets.push((self.now_ns, packet));
        self.now_ns += 5 * MILLISECOND_NS;
    }

    fn metered(&self, config: MeterConfig) -> Vec<FlowRecord> {
        let mut records = Vec::new();
        let mut meter = Meter::new(config);
        for (stamp_ns, packet) in &self.packets {
            let Parsed::Ip(packet) = parse(LinkType::RawIp, packet, packet.len() as u32) else {
                panic!("{packet:02x?}")
            };
            meter.observe(*stamp_ns, &packet, &mut |record| records.push(record));
        }
        meter.flush(&mut |record| records.push(record));
        let counts = meter.counts();
        assert_eq!((counts.live, counts.records), (0, records.len() as u64));
        assert_eq!(counts.packets, self.packets.len() as u64);
        records
    }
}

impl Conversation {
    fn send(&mut self, trace: &mut Trace, from: usize, flags: u8, payload: &[u8]) {
        let segment = Tcp {
            sequence: self.next[from],
            acknowledgement: self.next[1 - from],
            flags,
            payload,
            ..Tcp::new(self.ends[from], self.ends[1 - from])
        };
        trace.add(segment.ip_packet());
        let marks = u32::from(flags & (SYN | FIN) != 0);
        self.next[from] = self.next[from].wrapping_add(payload.len() as u32 + marks);
    }

    fn open(trace: &mut Trace, opener: &str, other: &str) -> Conversation {
        let ends = [opener.parse().unwrap(), other.parse().unwrap()];
        let mut conversation = Conversation { ends, next: [u32::MAX - 40, 77_000] };
        conversation.send(trace, 0, SYN, &[]);
        conversation.send(trace, 1, SYN | ACK, &[]);
        conversation.send(trace, 0, ACK, &[]);
        conversation
    }

    /// Sends `payload` and has it acknowledged.
    fn say(&mut self, trace: &mut Trace, from: usize, payload: &[u8]) {
        for part in payload.chunks(1_460) {
            self.send(trace, from, ACK | PUSH, part);
            self.send(trace, 1 - from, ACK, &[]);
        }
    }

    /// Both ends close; the last acknowledgement is the one that must not become a flow.
    fn close(&mut self, trace: &mut Trace, first: usize) {
        self.send(trace, first, FIN | ACK, &[]);
        self.send(trace, 1 - first, ACK, &[]);
        self.send(trace, 1 - first, FIN | ACK, &[]);
        self.send(trace, first, ACK, &[]);
    }
}

const CLIENT: &str = "198.18.0.10:49152";
const SERVER: &str = "198.19.0.20:21";
static FILE: [u8; 20_000] = [0x55; 20_000];

fn transaction() -> Trace {
    let mut trace = Trace::default();
    let mut control = Conversation::open(&mut trace, CLIENT, SERVER);
    control.say(&mut trace, 1, b"220 ready\r\n");
    control.say(&mut trace, 0, b"PORT 198,18,0,10,192,1\r\n");
    control.say(&mut trace, 1, b"200 ok\r\n");
    control.say(&mut trace, 0, b"RETR file\r\n");
    let mut file = Conversation::open(&mut trace, "198.19.0.20:20", "198.18.0.10:49153");
    control.say(&mut trace, 1, b"150 opening\r\n");
    file.say(&mut trace, 0, &FILE);
    file.close(&mut trace, 0);
    control.say(&mut trace, 1, b"226 done\r\n");
    control.say(&mut trace, 0, b"QUIT\r\n");
    control.close(&mut trace, 1);
    trace
}

#[test]
fn an_ftp_transaction_is_four_records() {
    let trace = transaction();
    let records = trace.metered(MeterConfig::default());
    assert_eq!(records.len(), 4, "{records:#?}");
    assert_eq!(
        records.iter().map(|record| record.packets).sum::<u64>(),
        trace.packets.len() as u64
    );
    let octets: usize = trace.packets.iter().map(|(_, packet)| packet.len()).sum();
    assert_eq!(records.iter().map(|record| record.octets).sum::<u64>(), octets as u64);
    let payload = |source_port: u16, destination_port: u16| {
        let record = records
            .iter()
            .find(|r| {
                (r.key.source_port, r.key.destination_port) == (source_port, destination_port)
            })
            .expect("a record for each direction");
        assert!(record.has_start() && record.has_end());
        assert_eq!(record.end_reason, EndReason::EndOfFlow);
        (record.payload_octets, record.opened)
    };
    assert_eq!(payload(49_152, 21), (Some(24 + 11 + 6), Some(true)));
    assert_eq!(payload(21, 49_152), (Some(11 + 8 + 13 + 10), Some(false)));
    assert_eq!(payload(20, 49_153), (Some(FILE.len() as u64), Some(true)));
    assert_eq!(payload(49_153, 20), (Some(0), Some(false)));
}

#[test]
fn without_lingering_the_last_acknowledgements_would_be_flows() {
    let records = transaction().metered(MeterConfig { linger_ns: 0, ..MeterConfig::default() });
    assert!(records.len() > 4, "the lingering is what makes it four");
}

#[test]
fn a_reused_port_is_another_record() {
    let mut trace = Trace::default();
    for round in 0..3u32 {
        let ends = [CLIENT.parse().unwrap(), SERVER.parse().unwrap()];
        let mut conversation =
            Conversation { ends, next: [round * 1_000_003, round * 999_983 + 5] };
        conversation.send(&mut trace, 0, SYN, &[]);
        conversation.send(&mut trace, 1, SYN | ACK, &[]);
        conversation.say(&mut trace, 0, b"hello");
        conversation.close(&mut trace, 0);
    }
    let records = trace.metered(MeterConfig::default());
    assert_eq!(records.len(), 6);
    let hellos = records.iter().filter(|record| record.payload_octets == Some(5)).count();
    assert_eq!(hellos, 3);

    let mut copies = transaction();
    let (syn_stamp_ns, syn) = copies.packets[0].clone();
    copies.packets.push((syn_stamp_ns, syn));
    assert_eq!(copies.metered(MeterConfig::default()).len(), 4, "a late copy opens nothing");
}

#[test]
fn retransmissions_keepalives_and_resets_carry_no_payload() {
    let mut trace = Trace::default();
    let mut conversation = Conversation::open(&mut trace, CLIENT, SERVER);
    conversation.say(&mut trace, 0, &[1; 3_000]);
    conversation.next[0] = conversation.next[0].wrapping_sub(80);
    conversation.send(&mut trace, 0, ACK | PUSH, &[1; 80]);
    conversation.next[0] = conversation.next[0].wrapping_sub(1);
    conversation.send(&mut trace, 0, ACK, &[0]);
    conversation.next[0] = conversation.next[0].wrapping_sub(1);
    conversation.send(&mut trace, 0, ACK, &[]);
    conversation.next[0] = 0x7777_7777;
    conversation.send(&mut trace, 0, RST, b"a reason");
    let records = trace.metered(MeterConfig::default());
    assert_eq!(records.len(), 2);
    let sent = records.iter().find(|record| record.opened == Some(true)).unwrap();
    assert_eq!(sent.payload_octets, Some(3_000));
    assert!(sent.has_end());
}
