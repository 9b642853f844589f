// SPDX-License-Identifier: GPL-2.0-only
//! What is given back, and by whom.

use super::*;

#[test]
fn who_gives_back_its_own_gives_back_nothing_that_came_to_have_the_number() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 1);
    fake.process(11, 1000, 1);
    // Of the same user, or root's by its rights.
    for (mine, theirs) in [(USER, Peer { connection: 7, ..USER }), (ROOT, USER)] {
        let own = |id| Request::Release { id, own: true };
        let id = granted(book.answer(mine, ask(10, 5, 40)));
        assert!(matches!(
            book.answer(ROOT, Request::Release { id, own: false }),
            Response::Released(_)
        ));
        assert_eq!(
            granted(book.answer(theirs, ask(11, 5, 40))),
            id,
            "the number is given out again"
        );
        assert!(failed(book.answer(mine, own(id))).contains("another one"));
        assert_eq!(book.live(), 1);
        assert!(matches!(book.answer(theirs, own(id)), Response::Released(_)));
    }
}
