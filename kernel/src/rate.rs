// SPDX-License-Identifier: GPL-2.0-only
//! How much may be said in the log on account of one user, and in all: what users do must not fill it. Token buckets.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Lines a user causes at once, and then each second.
const USER: (f64, f64) = (40.0, 1.0);
/// Lines in all at once, and then each second.
const ALL: (f64, f64) = (400.0, 10.0);
/// Of those in all, what users leave to lines that nobody caused.
const KEPT: f64 = 100.0;
/// How often it is said how much was left out.
const SUMMARY: Duration = Duration::from_secs(10);

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Who caused it; root's are as those that nobody caused.
    pub user: Option<u32>,
    /// What to say.
    pub text: String,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn new((most, _): (f64, f64), now: Instant) -> Self {
        Self { tokens: most, at: now }
    }

    fn fill(&mut self, (most, rate): (f64, f64), now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + since * rate).min(most);
        self.at = now;
    }
}

/// What has been said of late.
#[derive(Debug)]
pub struct Rate {
    all: Bucket,
    /// Those who said something of late.
    users: BTreeMap<u32, Bucket>,
    left_out: BTreeMap<Option<u32>, u64>,
    summed: Instant,
}

impl Rate {
    /// Nothing has been said yet.
    pub fn new(now: Instant) -> Self {
        let (all, users) = (Bucket::new(ALL, now), BTreeMap::new());
        Self { all, users, left_out: BTreeMap::new(), summed: now }
    }

    /// Whether this may be said now; what may not is counted.
    pub fn may(&mut self, notice: &Notice, now: Instant) -> bool {
        let user = notice.user.filter(|uid| *uid != 0);
        self.all.fill(ALL, now);
        let may = match user {
            None => self.all.tokens >= 1.0,
            Some(uid) => {
                let bucket = self.users.entry(uid).or_insert_with(|| Bucket::new(USER, now));
                bucket.fill(USER, now);
                let may = bucket.tokens >= 1.0 && self.all.tokens >= KEPT + 1.0;
                bucket.tokens -= if may { 1.0 } else { 0.0 };
                may
            }
        };
        if may {
            self.all.tokens -= 1.0;
        } else {
            *self.left_out.entry(user).or_default() += 1;
        }
        may
    }

    /// Now and then, one line about all that was left out.
    pub fn summary(&mut self, now: Instant) -> Option<String> {
        if now.saturating_duration_since(self.summed) < SUMMARY {
            return None;
        }
        self.summed = now;
        self.users.retain(|_, bucket| {
            bucket.fill(USER, now);
            bucket.tokens < USER.0
        });
        let left_out = std::mem::take(&mut self.left_out);
        let (who, most) = left_out.iter().max_by_key(|(_, n)| **n)?;
        let total: u64 = left_out.values().sum();
        let who =
            who.map_or_else(String::new, |uid| format!("; {most} of them caused by user {uid}"));
        Some(format!("{total} lines left out{who}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(user: Option<u32>) -> Notice {
        Notice { user, text: "reservation 1".into() }
    }

    #[test]
    fn a_user_who_floods_the_log_is_cut_short_and_others_are_not() {
        let begin = Instant::now();
        let mut rate = Rate::new(begin);
        let mut said = 0;
        for ms in 0..60_000 {
            let now = begin + Duration::from_millis(ms);
            said += u32::from(rate.may(&by(Some(1000)), now));
        }
        assert!((40..=101).contains(&said), "{said}");
        let now = begin + Duration::from_secs(60);
        assert!(rate.may(&by(Some(1001)), now) && rate.may(&by(None), now));
        let words = rate.summary(now).unwrap();
        assert_eq!(
            words,
            format!("{0} lines left out; {0} of them caused by user 1000", 60_000 - said)
        );
        assert_eq!(rate.summary(now + SUMMARY), None);
    }

    #[test]
    fn many_users_together_leave_room_for_what_nobody_caused() {
        let now = Instant::now();
        let mut rate = Rate::new(now);
        let said = (0..1000).filter(|uid| rate.may(&by(Some(1000 + uid)), now)).count();
        assert_eq!(said, (ALL.0 - KEPT) as usize);
        assert!((0..KEPT as u32).all(|_| rate.may(&by(Some(0)), now)));
        assert!(!rate.may(&by(None), now));
        // Who has been quiet for long is forgotten.
        let _ = rate.summary(now + Duration::from_secs(3600));
        assert!(rate.users.is_empty() && rate.left_out.is_empty());
    }
}
