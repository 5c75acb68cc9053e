//! Values as tools write them, and lines that are not records.

use super::fields::Unit;
use super::*;
use nilometer_flow::record::tcp_flags;
use nilometer_stat::Rng;

/// The records of a text, and its counts.
fn read(text: &str) -> (Vec<FlowRecord>, Counts) {
    let mut layout = recognise(text.as_bytes()).expect("a sound header").expect("flow records");
    let (mut counts, mut flows) = (Counts::default(), Vec::new());
    let skipped = usize::from(matches!(layout, Layout::Columns { .. }));
    for line in text.lines().skip(skipped) {
        if let (Layout::Zeek(fields), Some(names)) = (&mut layout, line.strip_prefix("#fields\t")) {
            *fields = Fields::of(names.split('\t'));
        } else if !line.starts_with('#') {
            take_line(&layout, line, &mut counts, &mut flows);
        }
    }
    counts.assert_balanced();
    (flows, counts)
}

#[test]
fn moments_are_read_as_tools_write_them() {
    let moment = 1_674_671_743_894_000_000;
    for (text, unit) in [
        ("1674671743.894", Unit::Seconds),
        ("1674671743894", Unit::Millis),
        ("1674671743.894", Unit::Millis),
        ("1674671743894000000", Unit::Nanos),
        ("2023-01-25 18:35:43.894", Unit::Seconds),
        ("2023-01-25T18:35:43.894Z", Unit::Nanos),
        ("2023/01/25 18:35:43.894000", Unit::Millis),
        ("2023-01-25T20:05:43.894+01:30", Unit::Seconds),
    ] {
        assert_eq!(values::moment(text, unit), Some(moment), "{text}");
    }
    assert_eq!(values::moment("2000-02-29 00:00", Unit::Seconds), Some(951_782_400_000_000_000));
    assert_eq!(values::moment("1700000000", Unit::Millis), Some(1_700_000_000_000_000_000));
    assert_eq!(
        values::moment("90000000", Unit::Millis),
        Some(90_000_000_000_000),
        "a day and more"
    );
    for text in
        ["", "yesterday", "2023-13-01 00:00:00", "1969-12-31 23:59:59", "1e9", "-5", "1.2.3"]
    {
        assert_eq!(values::moment(text, Unit::Seconds), None, "{text}");
    }
}

#[test]
fn a_line_of_zeek_is_two_records() {
    let log = "#separator \\x09\n#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\t\
               duration\torig_bytes\tresp_bytes\thistory\torig_pkts\torig_ip_bytes\tresp_pkts\t\
               resp_ip_bytes\n#types\ttime\n\
               1700000000.5\tC1\t10.0.0.1\t40000\t10.0.0.2\t80\ttcp\t1.25\t5\t1000\tShADadFf\t4\t\
               217\t3\t1132\n\
               1700000001.0\tC2\tfe80::1\t5353\tff02::fb\t5353\tudp\t-\t-\t-\tD\t1\t90\t0\t0\n\
               #close\tnow\n";
    let (flows, counts) = read(log);
    assert_eq!((counts.records, counts.flows, counts.reverse_flows), (2, 2, 1));
    let [forth, back, alone] = &flows[..] else { panic!("{flows:?}") };
    assert_eq!((forth.packets, forth.octets, forth.payload_octets), (4, 217, Some(5)));
    assert_eq!((back.packets, back.octets, back.payload_octets), (3, 1_132, Some(1_000)));
    assert_eq!((forth.opened, back.opened, alone.opened), (Some(true), Some(false), None));
    assert_eq!(forth.end_ns - forth.start_ns, 1_250_000_000);
    assert_eq!(back.key, forth.key.reversed());
    assert!(forth.has_start() && forth.has_end() && back.has_start() && back.has_end());
    assert_eq!((alone.key.protocol, alone.tcp_flags, alone.packets), (17, 0, 1));
}

#[test]
fn argus_sums_of_both_directions_are_divided() {
    let table = "StartTime,Dur,Proto,SrcAddr,Sport,Dir,DstAddr,Dport,State,sTos,dTos,TotPkts,TotBytes,\
                 SrcBytes,Label\n\
                 2011/08/10 09:46:53.047277,3550.182373,udp,212.50.71.179,39678,  <->,147.32.84.229,\
                 13363,CON,0,0,12,875,413,flow=Background\n\
                 2011/08/10 09:46:53.048843,0.000883,tcp,84.13.246.132,28431,   ->,147.32.84.229,80,\
                 FSPA_FSPA,0,0,9,900,900,x\n\
                 2011/08/10 09:46:54.0,0.0,arp,147.32.84.1,,who,147.32.84.229,,CON,,,2,120,60,y\n";
    assert_eq!(recognise(table.as_bytes()).unwrap().unwrap().name(), "Argus CSV");
    let (flows, counts) = read(table);
    let sums: Vec<_> = flows.iter().map(|flow| (flow.packets, flow.octets)).collect();
    assert_eq!(sums, [(6, 413), (6, 462), (9, 900)]);
    let all = tcp_flags::FIN | tcp_flags::SYN | tcp_flags::PSH | tcp_flags::ACK;
    assert_eq!((flows[2].tcp_flags, flows[0].tcp_flags), (all, 0));
    assert_eq!((counts.records, counts.skips.of(Skip::KindUnknown)), (3, 1));
}

#[test]
fn tables_and_objects_decode_alike() {
    let table = "ts,te,sa,da,sp,dp,pr,flg,ipkt,ibyt\n\
                 2023-01-25 18:35:43,2023-01-25 18:35:44,10.0.0.1,10.0.0.2,443,33560,TCP,...A..S.,7,700\n";
    let other = "Start_Time;End_Time;\"SRC_IP\";DST_IP;SRC_PORT;DST_PORT;PROTOCOL;PACKETS;BYTES;tcp_flags\n\
                 1674671743000;1674671744000;\"10.0.0.1\";10.0.0.2;443;33560;6;7;700;0x12\n";
    let object = "{\"first\":\"2023-01-25T18:35:43\",\"last\":\"2023-01-25T18:35:44\",\"in_packets\":7,\
                  \"in_bytes\":700,\"proto\":6,\"tcp_flags\":\"...A..S.\",\"src_port\":443,\
                  \"dst_port\":33560,\"src4_addr\":\"10.0.0.1\",\"dst4_addr\":\"10.0.0.2\",\"x\":[1]}\n";
    let (flows, _) = read(table);
    assert_eq!((flows[0].packets, flows[0].tcp_flags), (7, 0x12));
    assert_eq!(read(other).0, flows);
    assert_eq!(read(object).0, flows);
}

#[test]
fn lines_without_a_flow_are_counted_and_other_text_is_refused() {
    let head = "ts,sa,da,sp,dp,pr,ipkt,ibyt\n";
    let lines = "1.5,10.0.0.1,10.0.0.2,1,2,6,1,40\n1.5,10.0.0.1\n,,,,,,,\nx,10.0.0.1,10.0.0.2,1,2,6,1,40\n\
                 1.5,here,there,1,2,6,1,40\n1.5,10.0.0.1,10.0.0.2,1,2,6,-1,40\n\
                 1.5,10.0.0.1,10.0.0.2,1,2,6,,\n1.5,10.0.0.1,10.0.0.2,1,2,carp,1,40\n";
    let (flows, counts) = read(&format!("{head}{lines}"));
    assert_eq!((flows.len(), counts.records, counts.skips.records()), (1, 8, 7));
    let skipped: Vec<_> = counts.skips.met().map(|(why, count)| (why.name(), count)).collect();
    let reasons =
        [("no_addresses", 2), ("no_counts", 1), ("record_damaged", 3), ("kind_unknown", 1)];
    assert_eq!(skipped, reasons);
    for text in
        ["a,b,c\n1,2,3\n", "no table at all\n", "{\"a\":1}\n", "{ not json\n", "\0\0,\n", ""]
    {
        assert!(recognise(text.as_bytes()).expect("not one").is_none(), "{text}");
    }
    let error = recognise(b"sa,da,sp,dp,pr,ipkt,ibyt\n").expect_err("no time").to_string();
    assert!(error.contains("no start"), "{error}");
}

#[test]
fn lines_of_chance_never_panic_and_balance() {
    let pieces = [
        "10.0.0.1",
        "::",
        "-",
        "\"",
        ",",
        "\t",
        "1e400",
        "18446744073709551616",
        "6",
        "2023-",
        "2023-01-25 18:35:43",
        "é",
        "0x",
        "+",
        "S_",
        "{",
        "}",
        "9999999999999999999",
        "T:",
        " -1:",
    ];
    let mut rng = Rng::new(3, 0, 0);
    for _ in 0..20_000 {
        let mut line = String::new();
        for _ in 0..=rng.below(16) {
            line += pieces[rng.below(pieces.len() as u64) as usize];
            line += [",", "", ":"][rng.below(3) as usize];
        }
        let text =
            format!("ts,sa,da,sp,dp,pr,flg,state,history,te,td,ipkt,ibyt,TotPkts,TotBytes\n{line}");
        if !line.starts_with('#') {
            read(&text);
        }
        let _ = recognise(line.as_bytes());
        let _ = values::moment(&line, Unit::Seconds);
    }
}
