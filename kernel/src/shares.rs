// SPDX-License-Identifier: GPL-2.0-only
//! Users and groups for whom `--limit` has another share than `--max-share`: who they are, and which one counts.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::str::FromStr;

use nix::unistd::{Group, User};
use onbeat_model::units::{Fraction, clip, format_percent, parse_percent};

/// Whose limit it is, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// A user.
    User(String),
    /// Every user in a Unix group, each by themselves.
    Group(String),
}

/// One `--limit`: what `who` may reserve of the usable CPUs' total, 0 to 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Whose.
    pub who: Who,
    /// How much.
    pub share: Fraction,
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const LIKE: &str = "write USER=PERCENT or @GROUP=PERCENT, such as @audio=80%";
        let (who, share) = text.split_once('=').ok_or(LIKE)?;
        let who = match who.strip_prefix('@') {
            Some("") => return Err(LIKE.into()),
            Some(group) => Who::Group(group.into()),
            None if who.is_empty() => return Err(LIKE.into()),
            None => Who::User(who.into()),
        };
        let share = parse_percent(share).map_err(|e| e.to_string())?;
        if share > Fraction::from_integer(1) {
            return Err(format!("{} is more than there is; at most 100%", format_percent(share)));
        }
        Ok(Self { who, share })
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mark, name) = match &self.who {
            Who::User(name) => ("", name),
            Who::Group(name) => ("@", name),
        };
        write!(f, "{mark}{}={}", clip(name), format_percent(self.share))
    }
}

/// All of them, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    users: BTreeMap<u32, Fraction>,
    groups: BTreeMap<u32, Fraction>,
}

impl Shares {
    /// Looks the names up in the system's user database; `all` is `--max-share`.
    ///
    /// # Errors
    /// One is limited twice, or is root, whom nothing limits; a group has less than all users, which who leaves it has
    /// not. Who is not there is left out, and told beside the others: a user may have been removed since.
    pub fn look_up(limits: &[Limit], all: Fraction) -> Result<(Self, Vec<String>), String> {
        for limit in limits {
            if matches!(limit.who, Who::Group(_)) && limit.share < all {
                return Err(format!(
                    "--limit {limit}: a program can leave its groups, so they only give more than --max-share, {}; \
                     limit users by name",
                    format_percent(all)
                ));
            }
        }
        let user = |name: &str| Ok(User::from_name(name)?.map(|user| user.uid.as_raw()));
        let group = |name: &str| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()));
        Self::with(limits, user, group)
    }

    fn with(
        limits: &[Limit],
        user: impl Fn(&str) -> nix::Result<Option<u32>>,
        group: impl Fn(&str) -> nix::Result<Option<u32>>,
    ) -> Result<(Self, Vec<String>), String> {
        let (mut all, mut missing) = (Self::default(), Vec::new());
        for limit in limits {
            let (kind, name, number, known) = match &limit.who {
                Who::User(name) => ("user", name, user(name), &mut all.users),
                Who::Group(name) => ("group", name, group(name), &mut all.groups),
            };
            let name = clip(name);
            let says = |why: String| format!("--limit {limit}: {why}");
            let wrong = |why: String| Err(says(why));
            let number = match number {
                Ok(Some(0)) if kind == "user" => {
                    return wrong("nothing limits root; leave it out".into());
                }
                Ok(Some(number)) => number,
                Ok(None) => {
                    let at = if kind == "user" { "" } else { "@" };
                    let other = if kind == "user" {
                        "a group is written @GROUP"
                    } else {
                        "a user without the @"
                    };
                    missing.push(says(format!(
                        "there is no {kind} {at}{name}; correct the name ({other}), or leave it out"
                    )));
                    continue;
                }
                Err(e) => {
                    missing.push(says(format!(
                        "the {kind} cannot be looked up: {}; try `getent {0} {name}`",
                        e.desc()
                    )));
                    continue;
                }
            };
            if known.insert(number, limit.share).is_some() {
                return wrong(format!("the {kind} {name} has two limits; keep one"));
            }
        }
        Ok((all, missing))
    }

    /// What a user who is in `groups` may hold of the usable CPUs' total: what is said of the user, else the most that
    /// is said of a group; `None` if nothing is, so that `--max-share` counts.
    pub fn of(&self, uid: u32, groups: &[u32]) -> Option<Fraction> {
        let theirs = || groups.iter().filter_map(|gid| self.groups.get(gid)).max();
        self.users.get(&uid).or_else(theirs).copied()
    }

    /// What whoever is at the other end of `stream` may hold, as [`Shares::of`]. The groups are those of the process
    /// that connected, as the kernel knows them: no user database that may be slow is asked.
    pub fn of_peer(&self, stream: &UnixStream, uid: u32, gid: u32) -> Option<Fraction> {
        let mut groups = vec![gid];
        if !self.groups.is_empty() {
            groups.extend(further_groups(stream).unwrap_or_default());
        }
        self.of(uid, &groups)
    }
}

/// The supplementary groups of the process that connected (unix(7), SO_PEERGROUPS).
fn further_groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut bytes = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: the kernel writes at most `bytes` bytes, and then how many there are.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(limits: &[&str]) -> Result<Shares, String> {
        let number = |of: &'static [(&str, u32)]| {
            move |name: &str| Ok(of.iter().find(|(known, _)| *known == name).map(|(_, id)| *id))
        };
        let limits: Vec<Limit> = limits.iter().map(|text| text.parse().unwrap()).collect();
        let users = number(&[("root", 0), ("anna", 1000), ("bert", 1001)]);
        let groups = number(&[("audio", 29), ("video", 44)]);
        let (all, missing) = Shares::with(&limits, users, groups)?;
        missing.into_iter().next().map_or(Ok(all), Err)
    }

    #[test]
    fn what_is_said_of_the_user_counts_then_the_most_that_is_said_of_a_group() {
        let all = shares(&["anna=10%", "@audio=60%", "@video=80%"]).unwrap();
        let percent = |n| Some(Fraction::new(n, 100));
        assert_eq!(all.of(1000, &[29, 44]), percent(10));
        assert_eq!(all.of(1001, &[7, 29, 44]), percent(80));
        assert_eq!(all.of(1001, &[29]), percent(60));
        assert_eq!(all.of(1001, &[7]), None);
    }

    #[test]
    fn names_that_are_not_there_and_limits_given_twice_are_told_with_a_remedy() {
        for (limits, words) in [
            (
                &["carla=5%"][..],
                "there is no user carla; correct the name (a group is written @GROUP)",
            ),
            (&["@anna=5%"], "there is no group @anna; correct the name (a user without the @)"),
            (&["root=5%"], "nothing limits root"),
            (&["anna=5%", "anna=6%"], "the user anna has two limits; keep one"),
        ] {
            let said = shares(limits).unwrap_err();
            assert!(said.contains(words) && said.starts_with("--limit "), "{said}");
        }
    }

    #[test]
    fn a_group_has_no_less_than_all_users() {
        let said =
            Shares::look_up(&["@audio=10%".parse().unwrap()], Fraction::new(1, 2)).unwrap_err();
        assert!(said.contains("limit users by name"), "{said}");
    }

    #[test]
    fn what_is_no_limit_is_refused_with_how_to_write_one() {
        for bad in ["", "anna", "=5%", "@=5%", "anna=5", "anna=101%", "anna=-1%"] {
            assert!(bad.parse::<Limit>().is_err(), "{bad}");
        }
        assert_eq!("@audio=62.5%".parse::<Limit>().unwrap().to_string(), "@audio=62.5%");
    }

    #[test]
    fn a_peer_s_groups_are_those_of_its_process() {
        let (here, _there) = UnixStream::pair().unwrap();
        let mut known = further_groups(&here).unwrap();
        let mut mine: Vec<u32> =
            nix::unistd::getgroups().unwrap().into_iter().map(|gid| gid.as_raw()).collect();
        known.sort_unstable();
        mine.sort_unstable();
        assert_eq!(known, mine);
        let shares = Shares { groups: [(4711, Fraction::new(4, 5))].into(), ..Shares::default() };
        assert_eq!(shares.of_peer(&here, 1000, 4711), Some(Fraction::new(4, 5)));
    }
}
