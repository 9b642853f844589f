// SPDX-License-Identifier: GPL-2.0-only
//! Classes of reservations, values of their jobs, and best effort's servers, where the order ranks.

use anyhow::{Context, Result};
use onbeat_analysis::plan::Place;
use onbeat_model::policy::Key;
use onbeat_model::protocol::Reserve;
use onbeat_model::units::clip;

use super::{Book, Problem, problem};
use crate::engine::Engine;
use crate::scheduler::Reservation;
use crate::settings::kind;
use crate::system::System;

impl<E: Engine, S: System> Book<E, S> {
    /// Whether the class that is asked for means anything here.
    pub(super) fn check_class(&self, r: &Reserve, room: usize) -> Result<(), Problem> {
        let Some(class) = r.class else { return Ok(()) };
        let settings = &self.rooms[room].settings;
        if !settings.order.key.ranks() {
            return problem(
                format!("{} knows no classes, so nothing is {class} there", settings.policy()),
                "leave the class out, or start the service with --policy edf-hsb-ns",
            );
        }
        if r.group.is_some() {
            return problem(
                format!(
                    "a member of a group cannot be {class}: it takes its turns within the group"
                ),
                "leave the class or the group out",
            );
        }
        Ok(())
    }

    /// Whether the value that is asked for means anything here.
    pub(super) fn check_value(
        &self,
        r: &Reserve,
        room: usize,
        within: Option<u32>,
    ) -> Result<(), Problem> {
        let order = Key::ALL.get(self.order_within(within, room) as usize);
        if r.value.is_none() || order.is_some_and(|order| order.chooses()) {
            return Ok(());
        }
        let who = match (&r.group, order) {
            (Some(group), Some(order)) => {
                format!("the group {:?}, whose order is {order},", clip(group))
            }
            _ => self.rooms[room].settings.policy(),
        };
        problem(
            format!("{who} does not choose between jobs, so no value counts there"),
            "leave the value out, or have a policy that chooses, such as g-dasa (`onbeat policy`)",
        )
    }

    /// Makes best effort's servers, which nobody owns, if the order ranks; to be called once, before anybody asks.
    ///
    /// # Errors
    /// The scheduler does not answer.
    pub fn draw(&mut self) -> Result<()> {
        let settings = self.common();
        if !settings.order.key.ranks() {
            return Ok(());
        }
        let servers = settings.servers;
        let wanted = Reservation {
            budget: servers.budget,
            period: servers.period,
            deadline: servers.period,
            place: Place { domain: 0, cpus: settings.usable, split: None },
            kind: kind(settings.hard()),
            order: settings.core_order(),
            marks: false,
            value: 0,
            hard: false,
            draws: true,
            account: None,
            group: false,
            within: None,
            purse: None,
        };
        for _ in 0..servers.count {
            self.engine.reserve(&wanted).context("best effort's servers")?;
        }
        Ok(())
    }
}
