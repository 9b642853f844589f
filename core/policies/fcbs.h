/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Flexible CBS (Kato, Ishikawa and Rajkumar, "CPU scheduling and memory management for interactive
 * real-time applications", section 4.2 and figure 3): soft CBS, and what a job leaves of its budget
 * goes to somebody else: to the first server in deadline order that has overrun (it borrows budget
 * and deadline, its own pair waiting), else to the first ready server, else it is kept as a bonus
 * that melts with time and goes to the next release. Budget is only moved, never made, and never
 * taken from the future.
 *
 * Figure 3 leaves the completer's own state open. Here it has nothing left after giving, and one
 * that ran on borrowed budget gets its own pair back, so that every task keeps at least Q in P.
 */
OB_FN void ob_fcbs_release(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_domain_p d;

	sv->has_saved = 0;
	ob_place_take_up(ob, sv, now);
	d = sv->domain;
	/* Who has just marked a job may be about to sleep: the bonus is for one that is there. A
	 * split reservation takes none: its window may end before the bonus was due, and staying
	 * longer in it would delay whom its CPU was promised to in between. */
	if (d->bonus > 0 && !sv->marked && !ob_place_moves(sv) && !sv->apart) {
		s64 left = d->bonus - (s64)(now - d->bonus_since);

		if (left > 0) {
			sv->e += left;
			sv->received += (u64)left;
			ob_emit(ob, now, OB_KC(OB_EV_BONUS, OB_NONE), OB_TS(OB_NONE, sv->id),
				(u64)left, 0);
		}
		d->bonus = 0;
	}
}

OB_FN void ob_fcbs_exhausted(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_restore(ob, sv, now);
	ob_place_renew(ob, sv, now);
}

/* What the completed job leaves, ns; its server gets its own pair back if that waited. */
OB_INLINE s64 ob_fcbs_settle(ob_server_p sv, u64 now)
{
	s64 left = sv->e;
	u64 deadline = sv->s;

	sv->e = left < 0 ? left : 0;
	if (sv->has_saved) {
		sv->has_saved = 0;
		sv->e += sv->saved_e;
		sv->s = sv->saved_s;
	}
	/* Budget with a deadline that has passed is time that has passed too. What is left on a CPU
	 * apart is no use on others. */
	return deadline > now && !sv->apart ? left : 0;
}

/* Keeps `left` as the domain's bonus. */
OB_INLINE void ob_fcbs_keep(ob_p ob, ob_server_p sv, s64 left, u64 now)
{
	sv->domain->bonus = left;
	sv->domain->bonus_since = now;
	ob_emit(ob, now, OB_KC(OB_EV_BONUS, OB_NONE), OB_TS(OB_NONE, OB_NONE), (u64)left, 0);
}

/* `to` is about to be given budget and borrows its deadline, too: its own pair is kept safe. One
 * that already runs on a borrowed pair just gets more. */
OB_INLINE void ob_fcbs_lend(ob_server_p to, u64 deadline, u64 now)
{
	ob_server_charge(to, now);
	if (to->has_saved)
		return;
	to->saved_e = to->e;
	to->saved_s = to->s;
	to->has_saved = 1;
	to->e = 0;
	to->s = deadline;
}

/* `sv` gives `left` to `to`, or keeps it for others if that one is on a CPU apart. */
OB_FN void ob_fcbs_give(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_server_p to OB_ARG, s64 left,
			u64 now)
{
	if (to->apart) {
		ob_fcbs_keep(ob, sv, left, now);
		return;
	}
	sv->donated += (u64)left;
	to->received += (u64)left;
	ob_emit(ob, now, OB_KC(OB_EV_DONATE, OB_NONE), OB_TS(OB_NONE, sv->id), (u64)left, to->id);
	ob_server_charge(to, now);
	to->e += left;
	ob_server_requeue(ob, to);
	ob_preempt(ob, to, to->head ? to->head->cpu : 0);
}

OB_INLINE void ob_fcbs_completed(ob_p ob, ob_server_p sv, u64 now)
{
	u64 deadline = sv->s;
	s64 left = ob_fcbs_settle(sv, now);
	ob_node_p first;

	if (left <= 0)
		return;
	first = ob_tree_first_over(&sv->domain->active, now);
	if (first)
		ob_fcbs_lend((ob_server_p)first, deadline, now);
	else
		first = ob_tree_head(&sv->domain->active);
	if (first)
		ob_fcbs_give(ob, sv, (ob_server_p)first, left, now);
	else
		ob_fcbs_keep(ob, sv, left, now);
}

OB_INLINE void ob_fcbs_replenished(ob_p ob, ob_server_p sv, u64 now)
{
}
