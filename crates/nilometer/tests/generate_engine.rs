//! The live traffic engine against itself on loopback: every byte, every count, every way to end.

use nilometer_stat::Rng;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use nilometer_lab::generate::{
    Client, ClientConfig, Execution, Limits, LiveCounters, Outcome, Server, ServerConfig,
    ServerReport, protocol,
};
use nilometer_traffic::plan::PlannedConnection;
use nilometer_wire::Time;

const ANY_V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn planned(index: u64, start_us: u64, size_bytes: u64) -> PlannedConnection {
    PlannedConnection {
        start: Time::from_nanos(start_us * 1_000),
        session: (index % 40) as u32,
        interval: 0,
        source: Ipv4Addr::new(127, 1, (index % 7) as u8, 1 + (index % 250) as u8).into(),
        destination: Ipv4Addr::new(127, 2, (index % 5) as u8, 1 + (index % 199) as u8).into(),
        size_bytes,
        request_bytes: 0,
        segment_bytes: 0,
        source_port: 0,
        script: None,
    }
}

/// `count` connections within `span_us`, mostly small, one in fifty of a megabyte, some of nothing.
fn mixed_plan(count: u64, span_us: u64) -> Vec<PlannedConnection> {
    let mut rng = Rng::new(11, 0, 0);
    let mut plan: Vec<_> = (0..count)
        .map(|index| {
            let chance = rng.next_u64();
            let size = match index % 50 {
                0 => 1_000_000,
                1 => 1,
                2 => 0,
                3 => 32_769,
                _ => (chance >> 40) % 40_000,
            };
            planned(index, (chance >> 20) % span_us, size)
        })
        .collect();
    plan.sort_by_key(|planned| planned.start);
    plan
}

/// Stops a server when a test ends, however it ends.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs a server beside `with`, which is given its port, and returns both accounts.
fn beside_server<T>(
    change: impl FnOnce(&mut ServerConfig),
    with: impl FnOnce(u16) -> T,
) -> (T, ServerReport) {
    let mut config = ServerConfig::new(vec![ANY_V4]);
    change(&mut config);
    let server = Server::bind(config).unwrap();
    let port = server.local_addresses().unwrap()[0].port();
    let (live, stop) = (LiveCounters::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        let running = scope.spawn(|| server.run(&live, &stop).unwrap());
        let _stopping = Stopping(&stop);
        let outcome = with(port);
        let patience = Instant::now() + Duration::from_secs(5);
        while live.progress().open > 0 && Instant::now() < patience {
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Relaxed);
        (outcome, running.join().unwrap())
    })
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

fn outcomes(executions: &[Execution]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for execution in executions {
        *counts.entry(format!("{:?}", execution.outcome)).or_default() += 1;
    }
    counts
}

fn assert_exact(plan: &[PlannedConnection], executions: &[Execution]) {
    assert_eq!(executions.len(), plan.len());
    for (index, (planned, execution)) in plan.iter().zip(executions).enumerate() {
        assert_eq!(execution.index as usize, index);
        assert_eq!(execution.outcome, Outcome::Completed, "{planned:?}: {execution:?}");
        assert_eq!(execution.received_bytes, planned.size_bytes);
        assert!(execution.started_ns >= planned.start.as_nanos(), "never early: {execution:?}");
        assert!(execution.finished_ns.unwrap() >= execution.started_ns);
        assert_ne!(execution.local_port, 0);
    }
}

#[test]
fn two_thousand_mixed_connections_arrive_exactly() {
    let plan = mixed_plan(2_000, 1_500_000);
    let bytes: u64 = plan.iter().map(|planned| planned.size_bytes).sum();
    let live = LiveCounters::new();
    let (executions, served) = beside_server(
        |_| {},
        |port| {
            let client = Client::new(ClientConfig::new(port, soon())).unwrap();
            assert_eq!(client.congestion(), "cubic");
            client.run(&plan, &live, &AtomicBool::new(false)).unwrap()
        },
    );
    assert_exact(&plan, &executions);
    assert_eq!((served.accepted, served.completed, served.sent_bytes), (2_000, 2_000, bytes));
    assert_eq!(served.congestion.as_deref(), Some("cubic"));
    let progress = live.progress();
    assert_eq!((progress.started, progress.completed, progress.open), (2_000, 2_000, 0));
    assert_eq!(progress.bytes, bytes);
    let late = |e: &Execution| e.started_ns - plan[e.index as usize].start.as_nanos();
    assert_eq!(progress.lateness_max_ns, executions.iter().map(late).max().unwrap());
}

#[test]
fn threads_share_a_plan_and_a_full_house_makes_starts_late_not_lost() {
    for limits in [Some(Limits::default()), None] {
        a_full_house(limits);
    }
}

fn a_full_house(limits: Option<Limits>) {
    let plan = mixed_plan(600, 1_000);
    let live = LiveCounters::new();
    let (executions, served) = beside_server(
        |config| {
            config.open_max = 10;
            config.congestion = "reno".into();
            config.limits = limits;
        },
        |port| {
            let mut config = ClientConfig::new(port, soon());
            config.open_max = 16;
            config.congestion = "reno".into();
            let threads = NonZeroUsize::new(2).unwrap();
            let client = Client::new(config).unwrap();
            client.run_threads(threads, &plan, &live, &AtomicBool::new(false)).unwrap()
        },
    );
    assert_exact(&plan, &executions);
    assert_eq!(served.completed, 600);
    assert_eq!(served.congestion.as_deref(), Some("reno"));
    assert!(live.progress().held > 0, "600 starts in a millisecond must wait for 16 places");
}

#[test]
fn ipv6_reaches_the_server_of_its_family() {
    let loopback = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let plan: Vec<_> = (0..50)
        .map(|index| PlannedConnection {
            source: loopback,
            destination: loopback,
            ..planned(index, index * 100, index * 1_000)
        })
        .collect();
    let (executions, served) = beside_server(
        |config| config.listen = vec![SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0)],
        |port| {
            let client = Client::new(ClientConfig::new(port, soon())).unwrap();
            client.run(&plan, &LiveCounters::new(), &AtomicBool::new(false)).unwrap()
        },
    );
    assert_exact(&plan, &executions);
    assert_eq!(served.completed, 50);
}

#[test]
fn a_port_in_use_is_one_clear_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = format!("{:#}", Server::bind(ServerConfig::new(vec![address])).unwrap_err());
    let port = address.port();
    assert_eq!(error, format!("port {port} at 127.0.0.1 is in use; stop what listens there"));
}

#[test]
fn unknown_congestion_control_and_interface_are_named() {
    let mut config = ClientConfig::new(1, soon());
    config.congestion = "carrier-pigeon".into();
    let error = format!("{:#}", Client::new(config.clone()).unwrap_err());
    assert!(error.starts_with("congestion control `carrier-pigeon` is not available"), "{error}");
    assert!(!error.contains('\n'), "{error}");
    config.congestion = "cubic".into();
    config.bind_device = Some("no-such-port0".into());
    let error = format!("{:#}", Client::new(config).unwrap_err());
    assert!(error.starts_with("cannot bind to interface `no-such-port0`"), "{error}");
}

#[test]
fn a_plan_out_of_order_is_refused() {
    let plan = [planned(0, 10, 1), planned(1, 20, 1), planned(2, 15, 1)];
    let client = Client::new(ClientConfig::new(1, soon())).unwrap();
    let error = client.run(&plan, &LiveCounters::new(), &AtomicBool::new(false)).unwrap_err();
    assert_eq!(error.to_string(), "connection 2 of the plan starts before connection 1");
}

#[test]
fn without_a_server_every_connection_is_refused() {
    // (Below the ephemeral ports, so that no other test listens there.)
    let port = 9_999;
    let plan: Vec<_> = (0..100).map(|index| planned(index, index * 50, 500)).collect();
    let live = LiveCounters::new();
    let client = Client::new(ClientConfig::new(port, soon())).unwrap();
    let executions = client.run(&plan, &live, &AtomicBool::new(false)).unwrap();
    assert_eq!(outcomes(&executions), BTreeMap::from([("Refused".to_owned(), 100)]));
    assert_eq!((live.progress().failed, live.progress().open), (100, 0));
}

#[test]
fn a_source_that_cannot_reach_the_destination_fails_alone() {
    let mut plan: Vec<_> = (0..3).map(|index| planned(index, index * 50, 500)).collect();
    plan[1].destination = Ipv6Addr::LOCALHOST.into();
    let (executions, _) = beside_server(
        |_| {},
        |port| {
            let client = Client::new(ClientConfig::new(port, soon())).unwrap();
            client.run(&plan, &LiveCounters::new(), &AtomicBool::new(false)).unwrap()
        },
    );
    assert_eq!(executions[1].outcome, Outcome::Failed(libc::EAFNOSUPPORT));
    assert_eq!(executions[0].outcome, Outcome::Completed);
    assert_eq!(executions[2].outcome, Outcome::Completed);
}

/// Plays `plan` against a server that treats each of its connections as `treat` does.
fn against(
    plan: &[PlannedConnection],
    idle: Duration,
    treat: impl Fn(&mut TcpStream) + Send + 'static,
) -> Vec<Execution> {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let mut config = ClientConfig::new(listener.local_addr().unwrap().port(), soon());
    config.idle = idle;
    config.drain = Duration::from_secs(4);
    let count = plan.len();
    let odd = thread::spawn(move || {
        let mut kept = Vec::new();
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; protocol::REQUEST_BYTES];
            stream.read_exact(&mut request).unwrap();
            treat(&mut stream);
            kept.push(stream.try_clone().unwrap());
        }
        thread::sleep(Duration::from_millis(50));
    });
    let client = Client::new(config).unwrap();
    let executions = client.run(plan, &LiveCounters::new(), &AtomicBool::new(false)).unwrap();
    if executions.iter().all(|execution| execution.outcome != Outcome::Unfinished) {
        odd.join().unwrap();
    }
    executions
}

#[test]
fn a_file_too_short_or_too_long_is_a_mismatch() {
    let plan = [planned(0, 0, 5_000), planned(1, 10, 100_000)];
    for length in [4_999, 100_001] {
        let executions = against(&plan, Duration::from_secs(3), move |stream| {
            stream.write_all(&vec![0; length]).unwrap();
            let _ = stream.shutdown(std::net::Shutdown::Write);
        });
        assert_eq!(outcomes(&executions), BTreeMap::from([("SizeMismatch".to_owned(), 2)]));
    }
}

#[test]
fn a_server_that_falls_silent_is_timed_out() {
    let plan = [planned(0, 0, 5_000), planned(1, 10, 100_000)];
    let before = Instant::now();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap(); // never accepts
    let mut config = ClientConfig::new(listener.local_addr().unwrap().port(), soon());
    config.idle = Duration::from_millis(300);
    let client = Client::new(config).unwrap();
    let executions = client.run(&plan, &LiveCounters::new(), &AtomicBool::new(false)).unwrap();
    assert_eq!(outcomes(&executions), BTreeMap::from([("TimedOut".to_owned(), 2)]));
    assert!(before.elapsed() < Duration::from_secs(10));
}

#[test]
fn stop_ends_the_run_and_returns_its_results() {
    let plan: Vec<_> = (0..1_000).map(|index| planned(index, index * 20_000, 2_000)).collect();
    let ((executions, took), _) = beside_server(
        |_| {},
        |port| {
            let client = Client::new(ClientConfig::new(port, soon())).unwrap();
            let (live, stop) = (LiveCounters::new(), AtomicBool::new(false));
            thread::scope(|scope| {
                let running = scope.spawn(|| client.run(&plan, &live, &stop).unwrap());
                while live.progress().completed < 5 {
                    thread::sleep(Duration::from_millis(1));
                }
                let stopped_at = Instant::now();
                stop.store(true, Relaxed);
                (running.join().unwrap(), stopped_at.elapsed())
            })
        },
    );
    assert!(took < Duration::from_secs(2), "the plan lasts 20 s, stopping took {took:?}");
    let counts = outcomes(&executions);
    assert_eq!(counts.values().sum::<usize>(), plan.len());
    assert!(counts["Completed"] >= 5 && counts["NotStarted"] > 500, "{counts:?}");
}

#[test]
fn the_server_counts_strangers_and_quitters_and_serves_the_rest() {
    let ((), served) = beside_server(
        |config| {
            let limits = config.limits.as_mut().unwrap();
            limits.rate_window = Duration::from_millis(400);
        },
        |port| {
            let call = || TcpStream::connect(("127.0.0.1", port)).unwrap();
            let mut stranger = call();
            stranger.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            let _ = stranger.read_to_end(&mut answer);
            assert!(answer.is_empty(), "an unknown client gets no answer");

            let mut halves = call(); // a request in two pieces is a request
            let request = protocol::Request::new(0, 70_000).encode();
            halves.write_all(&request[..7]).unwrap();
            thread::sleep(Duration::from_millis(20));
            halves.write_all(&request[7..]).unwrap();
            halves.read_to_end(&mut answer).unwrap();
            assert_eq!(answer.len(), 70_000);
            drop(halves);

            let mut slow = call(); // requests more than buffers hold and never reads
            slow.write_all(&protocol::Request::new(0, 1 << 32).encode()).unwrap();
            thread::sleep(Duration::from_millis(2_500));
        },
    );
    assert_eq!((served.accepted, served.bad_requests, served.completed), (3, 1, 1));
    assert_eq!((served.too_slow, served.broken, served.unfinished), (1, 0, 0), "{served:?}");
}

/// Sizes of segments that a plan may have, and bytes of a request sent in them.
const SEGMENTS: [u16; 3] = [0, 76, 500];
const LONG_REQUEST: u64 = 40_000;

/// A number of the kernel's `struct tcp_info`, which is longer than that of the C library.
fn tcp_info_field(stream: &TcpStream, offset: usize) -> u32 {
    let mut info = [0_u8; 232];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which are there, and returns how many.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert!(got == 0 && length as usize >= offset + 4, "{}", std::io::Error::last_os_error());
    u32::from_ne_bytes(info[offset..offset + 4].try_into().unwrap())
}

/// `tcpi_snd_mss`: payload of the segments that this end sends.
fn sent_segment_bytes(stream: &TcpStream) -> u32 {
    tcp_info_field(stream, 16)
}

/// `tcpi_data_segs_in`: segments with payload that came.
fn segments_that_came(stream: &TcpStream) -> u32 {
    tcp_info_field(stream, 152)
}

/// A server's view of its connection's segments: the number received, the bytes in them, and the payload
/// of those that it sends.
fn answered(mut stream: TcpStream) -> (u32, u64, u32) {
    let mut head = [0; protocol::REQUEST_BYTES];
    stream.read_exact(&mut head).unwrap();
    let request = protocol::Request::decode(&head).unwrap();
    let mut rest = vec![0; request.bytes as usize - head.len()];
    stream.read_exact(&mut rest).unwrap();
    let seen = (segments_that_came(&stream), request.bytes, sent_segment_bytes(&stream));
    stream.write_all(&vec![0; request.size_bytes as usize]).unwrap();
    seen
}

/// Requests arrive in segments of the planned size, and answers are sent in the same size: both as
/// counted by the kernel at the other end.
#[test]
fn segments_have_the_size_that_is_planned_both_ways() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for segment_bytes in SEGMENTS {
        let plan = [PlannedConnection {
            request_bytes: LONG_REQUEST,
            segment_bytes,
            ..planned(0, 0, 90_000)
        }];
        let (executions, (came, bytes, sends)) = thread::scope(|scope| {
            let server = scope.spawn(|| answered(listener.accept().unwrap().0));
            let client = Client::new(ClientConfig::new(port, soon())).unwrap();
            let executions =
                client.run(&plan, &LiveCounters::new(), &AtomicBool::new(false)).unwrap();
            (executions, server.join().unwrap())
        });
        assert_exact(&plan, &executions);
        assert_eq!(bytes, LONG_REQUEST);
        if segment_bytes == 0 {
            // As many as the path allows: loopback's are long.
            assert!(came < 40 && sends > 10_000, "{came} segments came, {sends} bytes are sent");
            continue;
        }
        assert_eq!(sends, u32::from(segment_bytes), "answers are in segments of {sends} bytes");
        let fewest = LONG_REQUEST.div_ceil(segment_bytes.into()) as u32;
        let most = fewest + fewest / 50 + 2;
        assert!((fewest..=most).contains(&came), "{came} segments of {segment_bytes}: {fewest}");
    }
}

#[test]
fn requests_and_answers_go_both_ways_to_the_byte() {
    let plan: Vec<_> = (0..60)
        .map(|index| PlannedConnection {
            request_bytes: [3, 17, 40_000, 3_000_000][index as usize % 4],
            segment_bytes: SEGMENTS[index as usize % 3],
            source_port: 0,
            script: None,
            ..planned(index, index * 500, [0, 1, 90_000][index as usize % 3])
        })
        .collect();
    let bytes: u64 = plan.iter().map(|planned| planned.size_bytes).sum();
    let (executions, served) = beside_server(
        |_| {},
        |port| {
            let client = Client::new(ClientConfig::new(port, soon())).unwrap();
            client.run(&plan, &LiveCounters::new(), &AtomicBool::new(false)).unwrap()
        },
    );
    assert_exact(&plan, &executions);
    assert_eq!((served.completed, served.bad_requests, served.sent_bytes), (60, 0, bytes));
}

#[test]
fn a_request_that_is_cut_or_too_long_has_no_answer() {
    let ((), served) = beside_server(
        |_| {},
        |port| {
            for payload in [&[0; 3][..], &[0; 9]] {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let mut request = protocol::Request::new(20, 5).encode().to_vec();
                request.extend(payload);
                stream.write_all(&request).unwrap();
                // It may have been reset already.
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).unwrap_or(0);
                assert!(answer.is_empty());
            }
        },
    );
    assert_eq!((served.accepted, served.bad_requests), (2, 2), "{served:?}");
}
