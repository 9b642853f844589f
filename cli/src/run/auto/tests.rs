// SPDX-License-Identifier: GPL-2.0-only
//! What becomes of a program that is measured while the service refuses or ends.

#[path = "../../../tests/common/fake.rs"]
mod fake;

use onbeat_model::protocol::{Beat, Request};
use onbeat_model::units::MS;

use super::*;
use fake::Fake;

/// A program with a rhythm of 40 ms, seen by its command: this process.
struct Seat {
    fake: Fake,
    auto: Auto,
    signals: Signals,
}

fn me() -> u32 {
    std::process::id()
}

impl Seat {
    fn new(period: Option<u64>) -> Self {
        let fake = Fake::start("g-edf+cbs");
        let service = Service::connect_to(&fake.socket()).unwrap();
        let auto = Auto::new(service, Params::new(1, 40 * MS), period, None, None);
        let rhythm = Rhythm {
            period_ns: 40 * MS,
            confidence: 0.9,
            // More than this process uses, so that the rhythm is no sideline's.
            used_ns: 39 * MS,
            used_max_ns: 39 * MS,
            periods: 15,
        };
        let (name, program) = (String::new(), String::new());
        let beat =
            Beat { pid: me(), thread: me(), uid: 0, name, program, reservation: None, rhythm };
        fake.world().beats = vec![beat];
        Self { fake, auto, signals: Signals::block().unwrap() }
    }

    /// One that is starved and has a trial, and the rhythm that it does not show yet.
    fn on_trial() -> (Self, Vec<Beat>) {
        let mut seat = Self::new(None);
        seat.auto.begin(me(), "program").unwrap();
        let beats = std::mem::take(&mut seat.fake.world().beats);
        seat.auto.begun -= IN_VAIN;
        seat.auto.trials.starve();
        seat.look(1);
        assert_eq!(seat.budget(), Some(9 * MS), "the trial");
        (seat, beats)
    }

    /// Looks so often, all times that it waits for being over.
    fn look(&mut self, times: usize) {
        for _ in 0..times {
            let ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
            (self.auto.listened, self.auto.looked) = (Instant::now() - 2 * LISTEN_ON, ago);
            self.auto.full = self.auto.full.map(|_| ago);
            self.auto.fixed = self.auto.fixed.map(|_| ago);
            if let Some(watch) = self.auto.watch() {
                watch.asks_now();
            }
            self.auto.look(me(), "program", &self.signals);
        }
    }

    /// The budget in force, ns.
    fn budget(&self) -> Option<u64> {
        self.fake.world().held.first().map(|(r, _)| r.budget_ns)
    }

    /// The program has worked for so long in each of 31 more periods.
    fn works(&self, ns: u64) {
        self.fake.world().work.extend([(ns, 1); 31]);
    }
}

#[test]
fn a_budget_that_could_not_be_changed_is_changed_once_it_can_be() {
    let mut seat = Seat::new(Some(40 * MS));
    seat.auto.begin(me(), "program").unwrap();
    assert_eq!(seat.budget(), Some(20 * MS));
    seat.fake.world().stuck = Some("it cannot be changed".into());
    seat.works(26 * MS);
    seat.look(3);
    assert_eq!(seat.budget(), Some(20 * MS));
    seat.fake.world().stuck = None;
    seat.works(26 * MS);
    seat.look(1);
    assert!(seat.budget() > Some(26 * MS), "{:?}", seat.budget());
    // Nor does one refusal end it: it has what fits, and more once there is room.
    seat.fake.world().room = 34 * MS;
    seat.works(36 * MS);
    seat.look(2);
    assert_eq!(seat.budget(), Some(34 * MS));
    seat.fake.world().room = u64::MAX;
    seat.works(36 * MS);
    seat.look(2);
    assert!(seat.budget() > Some(36 * MS), "{:?}", seat.budget());
}

#[test]
fn after_a_restart_it_has_what_fits_and_is_measured_on_and_has_more_once_there_is_room() {
    let mut seat = Seat::new(Some(40 * MS));
    seat.auto.begin(me(), "program").unwrap();
    seat.fake.restart("p-edf+cbs-hard", 0);
    seat.look(4);
    assert_eq!(seat.budget(), None, "there is no room");
    assert!(!seat.auto.watch().unwrap().held);
    seat.fake.world().room = 5 * MS;
    seat.look(1);
    assert_eq!(seat.budget(), Some(5 * MS), "it has what fits");
    seat.fake.world().room = u64::MAX;
    seat.works(10 * MS);
    seat.look(1);
    assert!(seat.budget() > Some(10 * MS), "{:?}", seat.budget());
    // Without what it was in the midst of when it got its reservation.
    assert_eq!(seat.auto.needs.summary().unwrap().jobs, 30);
}

#[test]
fn a_rhythm_that_finds_no_room_or_no_service_is_reserved_for_later() {
    let mut seat = Seat::new(None);
    seat.auto.begin(me(), "program").unwrap();
    seat.fake.world().room = 0;
    seat.look(6);
    assert_eq!(seat.budget(), None);
    assert!(seat.auto.why_nothing().contains("the room is full"), "{}", seat.auto.why_nothing());
    let asks = |r: &&Request| matches!(r, Request::Reserve(_));
    let asked = seat.fake.world().asked.iter().filter(asks).count();
    assert!(asked >= 2, "it is asked for again");
    seat.fake.restart("g-edf+cbs", u64::MAX);
    // It is lost, found again, and heard twice.
    seat.look(4);
    let held = seat.fake.world().held.clone();
    assert_eq!((held.len(), held[0].0.period_ns), (1, 40 * MS));
}

#[test]
fn a_program_whose_rhythm_waiting_hides_has_a_reservation_for_some_seconds_to_show_it() {
    let (mut seat, beats) = Seat::on_trial();
    seat.fake.world().beats = beats;
    seat.look(2);
    let held = seat.fake.world().held.clone();
    assert_eq!((held.len(), held[0].0.period_ns), (1, 40 * MS), "what it is for, and no trial");
    assert!(seat.auto.watch().is_some());
}

#[test]
fn a_trial_that_shows_no_rhythm_ends_and_is_not_repeated_soon_nor_often() {
    let mut seat = Seat::new(None);
    seat.auto.begin(me(), "program").unwrap();
    seat.fake.world().beats.clear();
    seat.auto.begun -= IN_VAIN;
    for times in 1..6 {
        seat.auto.trials.starve();
        seat.look(1);
        assert_eq!(seat.budget().is_some(), times <= 3, "{times}");
        seat.look(1);
        assert_eq!(seat.budget().is_some(), times <= 3, "it lasts");
        seat.auto.trials.earlier(Duration::from_secs(5));
        seat.look(1);
        assert_eq!(seat.budget(), None, "it has ended");
        seat.auto.trials.starve();
        seat.look(1);
        assert_eq!(seat.budget(), None, "it is not repeated soon");
        seat.auto.trials.earlier(Duration::from_secs(30));
    }
    assert!(seat.auto.why_nothing().contains("has no rhythm"), "{}", seat.auto.why_nothing());
}

#[test]
fn a_trial_ends_with_the_command_and_one_that_ended_with_its_service_is_repeated() {
    let (mut seat, _) = Seat::on_trial();
    seat.fake.restart("g-edf+cbs", u64::MAX);
    seat.look(1);
    assert_eq!(seat.budget(), None, "it is lost");
    seat.auto.trials.starve();
    seat.look(1);
    assert_eq!(seat.budget(), Some(9 * MS), "another trial");
    let Seat { fake, auto, .. } = seat;
    drop(auto.service());
    assert!(fake.world().held.is_empty());
}

#[test]
fn what_can_never_be_reserved_is_refused_before_the_program_begins() {
    let mut seat = Seat::new(None);
    seat.fake.world().senseless = Some("there is no CPU 9".into());
    let why = seat.auto.begin(me(), "program").unwrap_err();
    assert!(why.to_string().contains("there is no CPU 9"), "{why}");
    seat.fake.world().senseless = None;
    seat.fake.world().room = 0;
    seat.auto.begin(me(), "program").unwrap();
    assert!(seat.fake.world().held.is_empty());
}
