//! Which scripts need something that a TCP without a socket does not have, and what it is.
//!
//! A script is set aside for what it uses, never for how it would end: each rule below looks at the
//! system calls, options, packets and commands of the script alone. What is left is run, and passes
//! or fails.

use super::call::Call;
use super::packet::{Frame, Opt, Packet};
use super::script::{Action, Script};

/// Names in calls, and what a script that uses them is about.
const NAMES: [(&str, &str); 17] = [
    ("MSG_FASTOPEN", "TCP Fast Open (RFC 7413)"),
    ("TCP_FASTOPEN", "TCP Fast Open (RFC 7413)"),
    ("TCP_FASTOPEN_CONNECT", "TCP Fast Open (RFC 7413)"),
    ("TCP_FASTOPEN_KEY", "TCP Fast Open (RFC 7413)"),
    ("SO_ZEROCOPY", "socket API: zero-copy sends"),
    ("MSG_ZEROCOPY", "socket API: zero-copy sends"),
    ("SO_TIMESTAMPING", "socket API: packet time stamps"),
    ("MSG_ERRQUEUE", "socket API: the error queue"),
    ("TCP_INQ", "socket API: bytes in queue as ancillary data"),
    ("MSG_EOR", "socket API: record boundaries in the kernel's buffers"),
    ("TCP_NOTSENT_LOWAT", "socket API: readiness to write (TCP_NOTSENT_LOWAT)"),
    ("TCP_SYNCNT", "a limit on SYN retransmissions (TCP_SYNCNT)"),
    ("TCP_USER_TIMEOUT", "the user timeout (RFC 5482)"),
    ("SO_KEEPALIVE", "keep-alives"),
    ("IPPROTO_UDP", "UDP"),
    ("AF_UNSPEC", "socket API: disconnecting with AF_UNSPEC"),
    ("NULL", "socket API: null pointers"),
];

/// System calls that are not about TCP.
const CALLS: [(&str, &str); 8] = [
    ("epoll_create", "socket API: epoll"),
    ("epoll_ctl", "socket API: epoll"),
    ("poll", "socket API: poll"),
    ("splice", "socket API: splice"),
    ("sendfile", "socket API: sendfile"),
    ("pipe", "socket API: pipes"),
    ("psp_rx_assoc", "PSP, encryption below TCP"),
    ("psp_tx_assoc", "PSP, encryption below TCP"),
];

/// Words in shell commands.
const COMMANDS: [(&str, &str); 4] = [
    ("tcp_fastopen", "TCP Fast Open (RFC 7413)"),
    ("tcp_mtu_probing", "packetization layer path MTU discovery (RFC 4821)"),
    ("pfifo limit 0", "losses in the sender's own queueing discipline, which it is told of"),
    ("nstat", "the kernel's counters"),
];

/// What is kept of `tcp_info`.
pub const KEPT: [&str; 14] = [
    "tcpi_snd_cwnd",
    "tcpi_snd_ssthresh",
    "tcpi_ca_state",
    "tcpi_unacked",
    "tcpi_sacked",
    "tcpi_lost",
    "tcpi_retrans",
    "tcpi_reordering",
    "tcpi_rtt",
    "tcpi_min_rtt",
    "tcpi_snd_mss",
    "tcpi_advmss",
    "tcpi_state",
    "tcpi_reord_seen",
];

/// Why `script` does not apply; nothing if it does.
pub fn set_aside(script: &Script) -> Option<String> {
    let aside = script.calls().find_map(aside_for_call);
    let aside = aside.or_else(|| script.frames().find_map(|(_, frame)| aside_for_frame(frame)));
    let aside = aside.or_else(|| aside_for_commands(script)).map(str::to_string);
    let aside = aside.or_else(|| aside_for_code(script));
    let aside = aside.or_else(|| {
        let reason = "segments that the network card joined (GRO)";
        script.option("mss").map(|_| reason.to_string())
    });
    aside.or_else(|| {
        script.expects_failure.then(|| "expects packetdrill itself to complain".to_string())
    })
}

fn aside_for_call(call: &Call) -> Option<&'static str> {
    let by_name = CALLS.iter().find(|(name, _)| call.name == *name);
    let by_argument = || NAMES.iter().find(|(name, _)| call.mentions(name));
    if let Some((_, reason)) = by_name.or_else(by_argument) {
        return Some(reason);
    }
    (call.name == "getsockopt" && call.mentions("SO_SNDBUF"))
        .then_some("socket API: a send buffer counted in kernel memory")
}

fn aside_for_frame(frame: &Frame) -> Option<&'static str> {
    match frame {
        Frame::Foreign(word) if word == "icmp" => Some("ICMP"),
        Frame::Foreign(word) if word == "encap" => Some("PSP, encryption below TCP"),
        Frame::Foreign(_) => Some("packets that are not TCP over IP"),
        Frame::Tcp(packet) if packet.urgent => Some("urgent data"),
        Frame::Tcp(packet) => packet.options.iter().flatten().find_map(|option| match option {
            Opt::Foreign(name) if name.starts_with("FO") => Some("TCP Fast Open (RFC 7413)"),
            Opt::Foreign(name) if name == "md5" => Some("MD5 signatures (RFC 2385)"),
            Opt::Foreign(_) => Some("a TCP option that is not known"),
            _ => None,
        }),
    }
}

fn aside_for_commands(script: &Script) -> Option<&'static str> {
    let commands = script.commands();
    let rule = COMMANDS.iter().find(|(word, _)| commands.iter().any(|line| line.contains(word)));
    if let Some((_, reason)) = rule {
        return Some(reason);
    }
    // With fq the kernel paces; that matters only to a script that looks at departures.
    let paces = commands.iter().any(|line| line.contains("tc qdisc") && line.ends_with(" fq"));
    let is_data = |packet: &Packet| packet.outbound && packet.length > 0;
    let looks = script.frames().any(|(_, frame)| match frame {
        Frame::Tcp(packet) => is_data(packet),
        Frame::Foreign(_) => false,
    });
    (paces && looks).then_some("departures paced by the fq queueing discipline")
}

fn aside_for_code(script: &Script) -> Option<String> {
    let codes = script.events.iter().filter_map(|event| match &event.action {
        Action::Code(code) => Some(code),
        _ => None,
    });
    let names = codes.flat_map(|code| {
        code.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
    });
    let mut fields = names.filter(|name| name.starts_with("tcpi_"));
    let unknown = fields.find(|name| !KEPT.contains(name));
    unknown.map(|name| format!("socket API: {name} of tcp_info is not kept"))
}
