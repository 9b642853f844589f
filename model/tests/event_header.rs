// SPDX-License-Identifier: GPL-2.0-only
//! core/ob_event.h and model/src/event.rs say the same.

use onbeat_model::event::{EventKind, StopReason};

/// The lines `PREFIX_NAME = NUMBER,` of the header.
fn constants(prefix: &str) -> Vec<(String, u32)> {
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/ob_event.h");
    let text = std::fs::read_to_string(header).unwrap();
    text.lines()
        .filter_map(|l| l.trim().strip_prefix(prefix)?.split_once(" = "))
        .map(|(name, value)| {
            (name.to_lowercase(), value.split(',').next().unwrap().parse().unwrap())
        })
        .collect()
}

#[test]
fn every_event_kind_has_the_same_name_and_number_in_c() {
    let ours: Vec<(String, u32)> =
        EventKind::ALL.iter().map(|k| (format!("{k:?}").to_lowercase(), *k as u32)).collect();
    assert_eq!(constants("OB_EV_"), ours);
}

#[test]
fn every_stop_reason_has_the_same_name_and_number_in_c() {
    let ours: Vec<(String, u32)> = (0..)
        .map_while(StopReason::from_u64)
        .map(|r| (format!("{r:?}").to_lowercase(), r as u32))
        .collect();
    assert_eq!(constants("OB_STOP_"), ours);
}
