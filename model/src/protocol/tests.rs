// SPDX-License-Identifier: GPL-2.0-only
//! What goes over the wire, and what of it makes no sense.

use super::*;
use proptest::prelude::*;

fn reserve() -> Reserve {
    Reserve {
        thread: None,
        pid: 42,
        name: "mpv".into(),
        budget_ns: 25_000_000,
        period_ns: 41_700_000,
        deadline_ns: None,
        cpus: None,
        marks: false,
        descendants: false,
        trial: false,
        value: None,
        class: None,
        group: None,
        purse: None,
        set: None,
    }
}

#[test]
fn requests_look_like_this_on_the_wire() {
    let text = serde_json::to_string(&Request::Reserve(reserve())).unwrap();
    assert_eq!(
        text,
        "{\"op\":\"reserve\",\"pid\":42,\"name\":\"mpv\",\"budget_ns\":25000000,\
         \"period_ns\":41700000,\"deadline_ns\":null,\"cpus\":null,\"marks\":false}"
    );
    let short =
        br#"{"op":"reserve","pid":42,"name":"mpv","budget_ns":25000000,"period_ns":41700000}"#;
    assert_eq!(parse_message::<Request>(short).unwrap(), Request::Reserve(reserve()));
    assert_eq!(parse_message::<Request>(br#"{"op":"status"}"#).unwrap(), Request::Status);
    for (own, text) in
        [(false, r#"{"op":"release","id":7}"#), (true, r#"{"op":"release","id":7,"own":true}"#)]
    {
        let release = Request::Release { id: 7, own };
        assert_eq!(serde_json::to_string(&release).unwrap(), text);
        assert_eq!(parse_message::<Request>(text.as_bytes()).unwrap(), release);
    }
}

#[test]
fn messages_arrive_in_order_until_the_other_side_closes() {
    let mut wire = Vec::new();
    write_message(&mut wire, &Request::Status).unwrap();
    write_message(&mut wire, &Request::Release { id: 7, own: false }).unwrap();
    let mut input = &wire[..];
    let mut next = || read_message::<Request>(&mut input, REQUEST_BYTES).unwrap();
    assert_eq!(next(), Some(Request::Status));
    assert_eq!(next(), Some(Request::Release { id: 7, own: false }));
    assert_eq!(next(), None);
}

#[test]
fn long_and_cut_off_lines_are_told_apart() {
    let read = |bytes: &[u8]| read_message::<Request>(&mut &bytes[..], 20).unwrap_err();
    assert!(matches!(read(&[b' '; 21]), ProtocolError::TooLong(20)));
    assert!(matches!(read(b"{\"op\":\"stat"), ProtocolError::CutOff));
    assert!(matches!(read(b"{\"op\":\"no\"}\n"), ProtocolError::Malformed(_)));
    assert!(matches!(read(b"\n"), ProtocolError::Malformed(_)));
    assert!(read_message::<Request>(&mut &b"{\"op\":\"status\"}    \n"[..], 20).is_ok());
}

#[test]
fn impossible_reservations_are_named() {
    type Change = fn(&mut Reserve);
    let cases: [(Change, &str); 11] = [
        (|r| r.period_ns = 0, "the period"),
        (|r| r.period_ns = u64::MAX, "not between"),
        (|r| r.budget_ns = 0, "the budget"),
        (|r| r.budget_ns = 50_000_000, "above the period"),
        (|r| r.deadline_ns = Some(20_000_000), "above the deadline"),
        (|r| r.deadline_ns = Some(r.period_ns + 1), "longer than the period"),
        (|r| r.pid = 0, "no process"),
        (|r| r.thread = Some(0), "no thread"),
        (|r| r.name = "a\nb".into(), "no name"),
        (|r| r.cpus = Some(vec![]), "name at least one"),
        (|r| r.cpus = Some(vec![0; 65]), "at most 64"),
    ];
    for (change, part) in cases {
        let mut r = reserve();
        change(&mut r);
        let error = r.check().unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(reserve().check(), Ok(()));
}

#[test]
fn a_group_by_weight_says_so_on_the_wire_and_one_with_a_budget_as_ever() {
    let old = br#"{"op":"group","name":"g","budget_ns":5,"period_ns":1000}"#;
    let group =
        Group { name: "g".into(), budget_ns: Some(5), period_ns: Some(1000), ..Default::default() };
    assert_eq!(parse_message::<Request>(old).unwrap(), Request::Group(group.clone()));
    let inside = Group { group: Some("up".into()), budget_ns: None, period_ns: None, ..group };
    let by = Group { weight: Some(7), ..inside.clone() };
    let text = serde_json::to_string(&Request::Group(by.clone())).unwrap();
    assert_eq!(text, r#"{"op":"group","name":"g","weight":7,"group":"up"}"#);
    use crate::taskset::Portion;
    assert_eq!((by.portion(), inside.portion()), (Portion::Weight(7), Portion::Orders));
    assert_eq!((by.check(), inside.check()), (Ok(()), Ok(())));
    // A period of its own is its deadline; without one both are those around it.
    let own = Group { period_ns: Some(9_000), ..by.clone() };
    assert_eq!((by.times(Some((20, 15))), own.times(Some((20, 15)))), ((20, 15), (9_000, 9_000)));
}

#[test]
fn a_refusal_says_all_it_must() {
    let refusal = Refusal {
        reason: "CPU 0 is full".into(),
        budget_ns: 25_000_000,
        period_ns: 41_000_000,
        asked: Fraction::new(25, 41),
        free: Fraction::new(1, 4),
        holders: vec![Holder { name: "mpv".into(), utilization: Fraction::new(7, 10) }],
        nearest: Nearest { budget_ns: Some(10_250_000), period_ns: Some(100_000_000) },
    };
    let text = refusal.to_string();
    for part in [
        "CPU 0 is full",
        "25ms every 41ms",
        "~60.97%",
        "25% of a CPU, for one",
        "70%  mpv",
        "10.25ms",
        "every 100ms",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // That is of one CPU, this of all that there are.
    assert!(text.contains("held on all CPUs together (100% is one CPU):"), "{text}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut input = &bytes[..];
        while let Ok(Some(_)) = read_message::<Request>(&mut input, 50) {}
        let _ = parse_message::<Response>(&bytes);
    }

    #[test]
    fn no_mutation_of_a_message_makes_the_parser_panic(at in 0usize..150, byte in any::<u8>()) {
        let mut line = serde_json::to_vec(&Request::Reserve(reserve())).unwrap();
        let at = at % line.len();
        line[at] = byte;
        if let Ok(Request::Reserve(r)) = parse_message::<Request>(&line) {
            let _ = r.check();
        }
    }
}
