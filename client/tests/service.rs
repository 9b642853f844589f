// SPDX-License-Identifier: GPL-2.0-only
//! The library against a service that answers as told.

mod fake;

use fake::{Fake, agree, refuse};
use onbeat_client::{Error, Params, Service};
use onbeat_model::protocol::Request;

#[test]
fn a_reservation_is_asked_for_as_given_and_given_back() {
    let fake = Fake::start(agree);
    let mut service = Service::connect_to(&fake.socket()).unwrap();
    let params = Params::new(25, 41_000).with_deadline(40_000).on_cpus(vec![1]).marking_jobs();
    let grant = service.reserve(42, "movie", &params).unwrap();
    assert_eq!((grant.id, grant.cpus), (7, vec![0, 1]));
    assert_eq!(service.release(7).unwrap().jobs, 10);
    drop(service);
    let seen = fake.seen.join().unwrap();
    let Request::Reserve(reserve) = &seen[0] else { panic!("{seen:?}") };
    assert_eq!((reserve.pid, reserve.budget_ns, reserve.period_ns), (42, 25, 41_000));
    assert_eq!((reserve.deadline_ns, reserve.marks), (Some(40_000), true));
    assert_eq!(reserve.cpus, Some(vec![1]));
    assert_eq!(seen[1], Request::Release { id: 7, own: false });
}

#[test]
fn every_kind_of_failure_is_told_apart() {
    let fake = Fake::start(refuse);
    let mut service = Service::connect_to(&fake.socket()).unwrap();
    let error = service.reserve(1, "x", &Params::new(5, 20_000)).unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert!(error.to_string().contains("all CPUs are full"), "{error}");
    let error = service.reserve(1, "x", &Params::new(5, 0)).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");

    let fake = Fake::start(agree);
    let mut service = Service::connect_to(&fake.socket()).unwrap();
    let error = service.ask(&Request::Stats).unwrap_err();
    assert_eq!(error.to_string(), "what?; ask otherwise");

    let error = Service::connect_to("/nonexistent/socket".as_ref()).unwrap_err();
    assert!(error.to_string().contains("start scx_onbeat"), "{error}");
}
