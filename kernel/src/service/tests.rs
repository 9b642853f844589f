// SPDX-License-Identifier: GPL-2.0-only
//! The socket with real clients, some of them bad, and a scheduler that refuses everything.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

use onbeat_analysis::plan::Place;
use onbeat_core::ffi::ob_server;
use onbeat_model::policy::{Order, Server};
use onbeat_model::protocol::{Reserve, read_message, write_message};
use proptest::prelude::*;

use super::*;
use crate::scheduler::{Reservation, Rule};
use crate::settings::Settings;
use crate::system::Proc;

struct Empty;

impl Engine for Empty {
    fn reserve(&mut self, _: &Reservation) -> Result<u32> {
        bail!("no room for another reservation")
    }
    fn assign(&mut self, _: i32, _: u32) -> Result<()> {
        bail!("no such thread")
    }
    fn leave(&mut self, _: &crate::arena::Member) -> Result<()> {
        Ok(())
    }
    fn retire(&mut self, _: u32) -> Result<bool> {
        Ok(true)
    }
    fn release(&mut self, _: u32) -> Result<bool> {
        Ok(true)
    }
    fn place(&mut self, _: u32, _: &Place, _: u64) -> Result<()> {
        Ok(())
    }
    fn swap(&mut self, _: u32, _: &Place, _: u64, _: Rule) -> Result<()> {
        Ok(())
    }
    fn resize(&mut self, _: u32, _: u64, _: u64) -> anyhow::Result<()> {
        Ok(())
    }

    fn regroup(&mut self, _: u64) -> Result<()> {
        Ok(())
    }
    fn reorder(&mut self, _: u32) -> Result<()> {
        Ok(())
    }
    fn purse(&mut self, _: usize, _: &crate::arena::Purse) {}
    fn server(&self, _: u32) -> Option<ob_server> {
        None
    }
    fn members(&self, _: u32) -> Vec<crate::arena::Member> {
        Vec::new()
    }
    fn wakes(&mut self) -> Result<crate::arena::Wakes> {
        Ok(Default::default())
    }
    fn lives(&self, _: &crate::arena::Waking) -> bool {
        false
    }
    fn online(&self) -> u64 {
        0b11
    }
    fn counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

struct Bench {
    service: Service<Empty, Proc>,
    wake: UnixStream,
    _bell: UnixStream,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = Socket::bind(&folder.path().join("s")).unwrap();
        Self::of(folder, socket)
    }

    fn of(folder: tempfile::TempDir, socket: Socket) -> Self {
        let settings = Settings::whole(Order::GLOBAL_EDF, Server::Fcbs, 2, 1);
        let (wake, bell) = UnixStream::pair().unwrap();
        let service = Service::new(Book::new(Empty, Proc, settings), socket);
        Bench { service, wake, _bell: bell, folder }
    }

    fn client(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("s")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn turns(&mut self, n: usize) {
        for _ in 0..n {
            self.service.turn(Duration::from_millis(1), &self.wake).unwrap();
        }
    }

    fn ask(&mut self, client: &mut UnixStream, bytes: &[u8]) -> Response {
        client.write_all(bytes).unwrap();
        self.turns(4);
        read_message(&mut BufReader::new(client), 1 << 20).unwrap().unwrap()
    }
}

fn status_line() -> Vec<u8> {
    let mut line = Vec::new();
    write_message(&mut line, &Request::Status).unwrap();
    line
}

#[test]
fn a_client_is_answered_after_another_has_sent_nonsense() {
    let mut bench = Bench::new();
    let (mut bad, mut good) = (bench.client(), bench.client());
    for nonsense in [&b"\n"[..], b"{}\n", b"\xff\xfe\n", b"[1]\n", b"{\"op\":\"reserve\"}\n"] {
        let answer = bench.ask(&mut bad, nonsense);
        assert!(matches!(answer, Response::Error { .. }), "{answer:?}");
    }
    assert!(matches!(bench.ask(&mut good, &status_line()), Response::Status { .. }));
    // The one who sent it may do better.
    assert!(matches!(bench.ask(&mut bad, &status_line()), Response::Status { .. }));
}

#[test]
fn a_user_whose_requests_take_more_than_a_part_of_the_time_waits_and_nobody_else_does() {
    let mut bench = Bench::new();
    let pair = |bench: &mut Bench, uid: u32| {
        let (here, there) = UnixStream::pair().unwrap();
        for end in [&here, &there] {
            end.set_nonblocking(true).unwrap();
        }
        bench.service.welcome(there, uid, uid);
        here
    };
    let mut users = [1000, 1001, 0].map(|uid| pair(&mut bench, uid));
    let ask = |users: &mut [UnixStream; 3]| {
        users.iter_mut().for_each(|user| user.write_all(&status_line()).unwrap());
    };
    let answered = |users: &mut [UnixStream; 3]| {
        users.each_mut().map(|user| user.read(&mut [0; 1 << 14]).is_ok_and(|n| n > 0))
    };
    let until = Instant::now() + Duration::from_millis(300);
    bench.service.times.paid = [(1000, until + AT_ONCE), (0, until + AT_ONCE)].into();
    ask(&mut users);
    bench.turns(4);
    assert_eq!(answered(&mut users), [false, true, true]);
    let mut turns = 4;
    while Instant::now() < until {
        bench.turns(1);
        turns += 1;
    }
    // It waits for its turn without looking again and again: for a millisecond each time.
    assert!(turns < 310, "{turns}");
    bench.turns(4);
    assert_eq!(answered(&mut users), [true, false, false]);
    // What is answered is noted.
    let later = bench.service.times.paid[&1001];
    ask(&mut users);
    bench.turns(4);
    assert!(bench.service.times.paid[&1001] > later);
}

#[test]
fn an_endless_line_gets_an_error_and_the_connection_is_closed() {
    let mut bench = Bench::new();
    let mut bad = bench.client();
    bad.set_nonblocking(true).unwrap();
    let mut sent = 0;
    for _ in 0..64 {
        sent += bad.write(&[b' '; 16 << 10]).unwrap_or(0);
        bench.turns(1);
    }
    assert!(sent as u64 > REQUEST_BYTES);
    bad.set_nonblocking(false).unwrap();
    let mut lines = BufReader::new(&mut bad);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("more than 65536 bytes"), "{line}");
    assert!(bench.service.clients.is_empty());
}

#[test]
fn who_does_not_read_is_not_answered_further_and_holds_up_nobody() {
    let mut bench = Bench::new();
    let mut deaf = bench.client();
    deaf.set_nonblocking(true).unwrap();
    let line = status_line();
    for _ in 0..2_000 {
        if deaf.write(&line).is_err() {
            bench.turns(1);
        }
    }
    let held: usize = bench.service.clients.values().map(|c| c.input.len() + c.output.len()).sum();
    assert!(held < 256 << 10, "{held} bytes are kept for one client");
    let mut good = bench.client();
    assert!(matches!(bench.ask(&mut good, &line), Response::Status { .. }));
    // Its patience is not infinite either.
    for client in bench.service.clients.values_mut().filter(|c| !c.output.is_empty()) {
        client.unread = Some(Instant::now() - PATIENCE - Duration::from_secs(1));
    }
    bench.turns(2);
    assert_eq!(bench.service.clients.len(), 1);
}

#[test]
fn half_a_request_is_not_waited_for_for_ever() {
    let mut bench = Bench::new();
    let mut slow = bench.client();
    slow.write_all(b"{\"op\":").unwrap();
    bench.turns(3);
    let client = bench.service.clients.values_mut().next().unwrap();
    assert!(client.begun.is_some());
    client.begun = Some(Instant::now() - PATIENCE - Duration::from_secs(1));
    bench.turns(2);
    assert!(bench.service.clients.is_empty());
    let mut rest = Vec::new();
    assert_eq!(slow.read_to_end(&mut rest).unwrap(), 0);
}

#[test]
fn one_more_client_than_there_is_room_for_is_told_so() {
    let mut bench = Bench::new();
    let most =
        if rustix::process::getuid().is_root() { CLIENTS_OF_ROOT } else { CLIENTS_OF_A_USER };
    let clients: Vec<UnixStream> = (0..most)
        .map(|_| {
            let client = bench.client();
            bench.turns(1);
            client
        })
        .collect();
    let mut late = bench.client();
    bench.turns(2);
    let mut text = String::new();
    late.read_to_string(&mut text).unwrap();
    assert!(text.contains("too many connections"), "{text}");
    drop(clients);
    bench.turns(2);
    assert!(bench.service.clients.is_empty());
}

/// As many idle connections as all ordinary users together may have.
fn crowded(bench: &mut Bench) -> Vec<UnixStream> {
    let others = (0..CLIENTS).map(|i| {
        let (here, there) = UnixStream::pair().unwrap();
        bench.service.welcome(there, 1000 + (i / CLIENTS_OF_A_USER) as u32, 100);
        here
    });
    others.collect()
}

fn connections(bench: &Bench, uid: u32) -> usize {
    bench.service.clients.values().filter(|c| c.peer.uid == uid).count()
}

#[test]
fn idle_connections_of_many_users_shut_out_neither_root_nor_another_user() {
    let mut bench = Bench::new();
    let _crowd = crowded(&mut bench);
    assert_eq!(bench.service.clients.len(), CLIENTS);
    let (_root, there) = UnixStream::pair().unwrap();
    bench.service.welcome(there, 0, 0);
    assert_eq!(connections(&bench, 0), 1);
    // A newcomer takes the place of one of those who have most, until all have as many.
    for i in 0..CLIENTS_OF_A_USER {
        let (_, there) = UnixStream::pair().unwrap();
        bench.service.welcome(there, 5000, 100);
        assert!(connections(&bench, 5000) > 0, "{i}");
        assert!(bench.service.clients.len() <= CLIENTS + 1);
    }
    let users = CLIENTS / CLIENTS_OF_A_USER;
    let least = (0..users).map(|i| connections(&bench, 1000 + i as u32)).min().unwrap();
    assert!(least >= CLIENTS / (users + 1), "{least}");
    assert!(connections(&bench, 5000) >= CLIENTS / (users + 1));
}

#[test]
fn who_holds_nothing_and_is_silent_is_cut_off_after_a_while() {
    let mut bench = Bench::new();
    let (mut silent, mut busy) = (bench.client(), bench.client());
    bench.turns(2);
    let long_ago = Instant::now() - SILENCE - Duration::from_secs(1);
    bench.service.clients.values_mut().for_each(|c| c.silent = long_ago);
    bench.service.swept = long_ago;
    assert!(matches!(bench.ask(&mut busy, &status_line()), Response::Status { .. }));
    assert_eq!(bench.service.clients.len(), 1);
    assert_eq!(silent.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn who_comes_while_the_service_starts_is_told_so_and_served_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let socket = Socket::bind(&folder.path().join("s")).unwrap();
    let greeter = socket.greet().unwrap();
    let mut early = UnixStream::connect(folder.path().join("s")).unwrap();
    early.write_all(&status_line()).unwrap();
    // Who looks again and again leaves room for others.
    for _ in 0..CLIENTS_OF_ROOT + 10 {
        let mut again = UnixStream::connect(folder.path().join("s")).unwrap();
        assert!(again.read(&mut [0; 8]).unwrap() > 0);
    }
    let mut early = BufReader::new(early);
    let answer: Option<Response> = read_message(&mut early, 1 << 20).unwrap();
    assert_eq!(answer, Some(Response::Starting));
    let mut bench = Bench::of(folder, socket);
    for (stream, uid, gid) in greeter.end() {
        bench.service.welcome(stream, uid, gid);
    }
    bench.turns(3);
    let answer: Option<Response> = read_message(&mut early, 1 << 20).unwrap();
    assert!(matches!(answer, Some(Response::Status { .. })), "{answer:?}");
}

#[test]
fn requests_sent_before_hanging_up_are_still_served() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let lines = status_line().repeat(3 * TURN);
    client.write_all(&lines).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    bench.turns(20);
    let answers = BufReader::new(client).lines().count();
    assert_eq!(answers, 3 * TURN);
    assert!(bench.service.clients.is_empty());
}

#[test]
fn a_socket_in_use_and_a_file_in_the_way_are_errors_and_an_old_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/s");
    let socket = Socket::bind(&path).unwrap();
    let error = Socket::bind(&path).unwrap_err().to_string();
    assert!(error.contains("already listens"), "{error}");
    drop(socket);
    assert!(!path.exists());
    drop(UnixListener::bind(&path).unwrap()); // leaves its file, as one that was killed does
    drop(Socket::bind(&path).unwrap());
    fs::write(&path, "x").unwrap();
    let error = Socket::bind(&path).unwrap_err().to_string();
    assert!(error.contains("is no socket"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"x");
}

#[test]
fn a_folder_that_others_can_write_is_no_place_for_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    for (mode, fits) in [(0o757, false), (0o1777, true), (0o755, true)] {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        for path in [folder.path().join("s"), inner.join("s")] {
            let bound = Socket::bind(&path);
            assert_eq!(bound.is_ok(), fits, "{mode:o} {}", path.display());
            if let Err(error) = bound {
                let words = error.to_string();
                assert!(words.contains("others can write there"), "{words}");
                let words = Socket::check(&path).unwrap_err().to_string();
                assert!(words.contains("others can write there"), "{words}");
                assert!(words.contains("choose another --socket"), "{words}");
            }
        }
    }
}

#[test]
fn what_the_scheduler_has_no_room_for_is_an_error_not_a_grant() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let mut line = Vec::new();
    let reserve = Reserve {
        pid: std::process::id(),
        thread: None,
        name: "x".into(),
        budget_ns: 1_000_000,
        period_ns: 10_000_000,
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
    };
    write_message(&mut line, &Request::Reserve(reserve)).unwrap();
    let Response::Error { message, .. } = bench.ask(&mut client, &line) else { panic!() };
    assert!(message.contains("no room"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Any bytes: the service neither fails nor stops serving others.
    #[test]
    fn no_bytes_make_the_service_fail(
        chunks in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                "\\{\"op\":\"[a-z]{0,8}\"[ -~]{0,80}\\}\n".prop_map(String::into_bytes),
                Just(status_line()),
            ],
            0..12,
        )
    ) {
        let mut bench = Bench::new();
        let mut wild = bench.client();
        for chunk in &chunks {
            if wild.write_all(chunk).is_err() {
                break;
            }
            bench.turns(1);
        }
        let mut good = bench.client();
        let served = matches!(bench.ask(&mut good, &status_line()), Response::Status { .. });
        prop_assert!(served);
    }
}
