/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Slack: how long the CPUs of a domain can do as they like without anybody's missing a deadline
 * within its budget.
 *
 * Every server that lends pledges its budget left e by its deadline s, and from then on its share
 * U = Q/P of the time; one without a deadline ahead pledges U from now on, for its next pair begins
 * no earlier. By a time D the domain owes
 *
 *   h(D) = Σ over s ≤ D of e + U (D − s), plus Σ over the others U (D − now),
 *
 * and on several CPUs, as each server has one at a time, what must be served by then of what is due
 * later: e − (1 − σ)(s − D) where that is positive. The m CPUs can give m (D − now), less best
 * effort's share σ. On one CPU that is EDF's processor demand criterion (Baruah, Rosier and Howell
 * 1990) with h a fluid bound from above, whose gap can only grow between deadlines: so as long as
 * the least gap over all s is not negative EDF serves everybody in time, whatever ran before. Time
 * passes at a rate of m, so the least gap S lasts for about S/m (ob_slack_lasts): within that time
 * the domain need not be looked at again. On several CPUs the same number is necessary and not
 * sufficient, as EDZL itself has no exact test; docs/slack.md says what was tested.
 */
#ifndef OB_SLACK_H
#define OB_SLACK_H

#include "place/registry.h"

/* Slack of a CPU below which a domain is tight, ns: what an alarm may be late by. */
#define OB_SLACK_LEAST 100000ULL
/* What each of several CPUs keeps of it besides, ns: where less than so many thousandths of them,
 * or of one that a server needs, are unreserved, or somebody has a relative deadline below that,
 * ns. The gap is necessary there and not sufficient; docs/slack.md has what that changed. */
#define OB_SLACK_SPARE 200000ULL
#define OB_SLACK_UNRESERVED 30ULL
#define OB_SLACK_BRIEF 12000000ULL
/* A tight domain is looked at after so long again, ns: as long as the slack that is missing takes
 * to come if all CPUs rest, within these bounds. */
#define OB_SLACK_SOONEST 50000ULL
#define OB_SLACK_EVERY 500000ULL
/* Servers that are looked at; with more the domain is tight. */
#define OB_SLACK_MOST 256
/* And pairs of them. */
#define OB_SLACK_PAIRS 8192
/* Nobody's deadline counts as further away, ns: products stay below 2^63. */
#define OB_SLACK_FAR (1ULL << 36)

/* Servers of which nothing is known but U leave the tree when they have no job. */
OB_INLINE void ob_pledges_forget(ob_domain_p d, u64 now)
{
	while (OB_LOOP) {
		ob_node_p n = ob_tree_head(&d->pledges);

		if (!n || n->key > now || OB_SERVER_OF_PLEDGE(n)->state)
			return;
		ob_unpledge(OB_SERVER_OF_PLEDGE(n));
	}
}

/* What `sv` has pledged by its deadline, `left` ns from now. One that sleeps has what it would keep
 * when it wakes: with more a new pair begins (ob_whole_take_up). */
OB_FN s64 ob_pledged(ob_server_p sv OB_ARG, u64 left, u64 now)
{
	s64 e = sv->e, most = (s64)(sv->share * left >> OB_SHARE_BITS);

	if (sv->running && !sv->spent && now > sv->charged)
		e -= (s64)((now - sv->charged) * sv->running);
	if (!sv->state && e > most)
		e = most;
	return e > 0 ? e : 0;
}

/* What best effort has been paid ahead on `c`, ns: less is left of it with all that has run since.
 */
OB_INLINE u64 ob_slack_ahead(ob_p ob, ob_cpu_p c, u64 now)
{
	u64 paid = c->debt < 0 ? (u64)-c->debt : 0, used = 0;

	if (c->use == OB_USE_RESERVED && now > c->since)
		used = (now - c->since) * ob->share_permille / (1000 - ob->share_permille);
	return paid > used ? paid - used : 0;
}

/* What the CPUs of `d` keep of the slack. */
OB_INLINE s64 ob_slack_spare(ob_p ob, ob_domain_p d)
{
	u64 most = ((1000 - ob->share_permille) << OB_SHARE_BITS) / 1000;

	most -= ob_min(most, (OB_SLACK_UNRESERVED << OB_SHARE_BITS) / 1000);
	if (d->sum.cpus < 2 || (d->shortest >= OB_SLACK_BRIEF && d->densest <= most &&
				d->bandwidth <= d->sum.cpus * most))
		return 0;
	return (s64)(d->sum.cpus * OB_SLACK_SPARE);
}

/* CPUs of `d`, and what best effort is owed there beside its share, as far as it counts by `first`
 * ns from now. */
OB_FN void ob_slack_cpus(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u64 first, u64 now)
{
	u64 within = first * ob->share_permille / 1000;
	u32 i;

	d->sum.cpus = 0;
	d->sum.ahead = 0;
	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++) {
		ob_cpu_p c = ob_cpu(ob, i);

		if (c->domain != d || c->apart || !(ob->online & OB_BIT(i)))
			continue;
		d->sum.cpus++;
		if (c->owed)
			d->sum.ahead -= (s64)c->owed;
		else
			d->sum.ahead += (s64)ob_min(ob_slack_ahead(ob, c, now), within);
	}
}

/* How long slack of `each` ns a CPU lasts: time passes at a rate of 1 − σ, and what best effort has
 * been paid ahead is used up at one of σ/(1 − σ), together 1 + σ²/(1 − σ). */
OB_INLINE u64 ob_slack_lasts(ob_p ob, u64 each)
{
	u64 p = ob->share_permille, whole = 1000 * (1000 - p);

	return each * whole / (whole + p * p);
}

/* Sums up what must be served by `left` ns from now of the servers from `n` to `past`, which are
 * due then or later: each has one CPU at a time, less best effort's share of that. On one CPU the
 * gap at their own deadlines says as much. */
OB_FN void ob_slack_force(ob_p ob OB_ARG, ob_domain_p d OB_ARG, ob_node_p n OB_ARG, u64 left,
			  u64 now)
{
	u64 gives = 1000 - ob->share_permille;

	d->sum.forced = 0;
	for (; n && n != d->sum.past && OB_LOOP; n = ob_tree_next(n)) {
		u64 due = ob_min(n->key > now ? n->key - now : 0, OB_SLACK_FAR);
		s64 e = ob_pledged(OB_SERVER_OF_PLEDGE(n), due, now);

		e -= (s64)((due - left) * gives / 1000);

		if (e > 0)
			d->sum.forced += e;
		if (++d->sum.pairs > OB_SLACK_PAIRS)
			d->sum.least = 0;
		if (!d->sum.least)
			return;
	}
}

/* Of the servers due later than `left` ns from now, the budgets of those that may count by then. */
OB_FN void ob_slack_near(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u64 left, u64 now)
{
	u64 far = d->largest * 1000 / (1000 - ob->share_permille);
	ob_node_p n = d->sum.past;

	for (; n && n->key < now + left + far && OB_LOOP; n = ob_tree_next(n)) {
		u64 due = ob_min(n->key > now ? n->key - now : 0, OB_SLACK_FAR);

		d->sum.near += ob_pledged(OB_SERVER_OF_PLEDGE(n), due, now);
	}
	d->sum.past = n;
}

/* Takes into account the gap at a time `left` ns from now, by the servers summed up so far; those
 * from `n` on are due then or later. What they force is at most `near`, and need not be known where
 * even so the gap is not the least. */
OB_FN void ob_slack_gap(ob_p ob OB_ARG, ob_domain_p d OB_ARG, ob_node_p n OB_ARG, u64 left, u64 now)
{
	s64 gap = (s64)(d->sum.cpus * left);

	if (ob->share_permille)
		gap += d->sum.ahead - (s64)(d->sum.cpus * left * ob->share_permille / 1000);
	gap -= (s64)((d->sum.shares + d->bandwidth - d->pledged) * left >> OB_SHARE_BITS);
	gap += d->sum.since - d->sum.owed;
	if (n && d->sum.cpus > 1) {
		ob_slack_near(ob, d, left, now);
		if (gap - d->sum.near >= d->sum.least)
			return;
		ob_slack_force(ob, d, n, left, now);
		gap -= d->sum.forced;
	}
	if (gap < d->sum.least)
		d->sum.least = gap;
}

/* Adds `sv`, and the gap at its deadline. */
OB_FN void ob_slack_add(ob_p ob OB_ARG, ob_domain_p d OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 left = ob_min(sv->s > now ? sv->s - now : 0, OB_SLACK_FAR);
	s64 e = ob_pledged(sv, left, now);
	ob_node_p next = ob_tree_next(&sv->pledge);

	if (sv->state && (sv->spent || sv->later || ob_policy_lends(sv) == OB_LENDS_START))
		d->sum.claims++;
	if (d->sum.fresh <= left) {
		ob_slack_gap(ob, d, &sv->pledge, d->sum.fresh, now);
		d->sum.fresh = OB_NEVER;
	}
	if (d->sum.past == &sv->pledge)
		d->sum.past = next;
	else
		d->sum.near -= e;
	d->sum.owed += e;
	d->sum.shares += sv->share;
	d->sum.since += (s64)(sv->share * left >> OB_SHARE_BITS);
	ob_slack_gap(ob, d, next, left, now);
}

/*
 * The least gap, ns, in d->sum.least. It is looked for at all deadlines pledged, and at the first
 * one that a job released from now on could have: after that all new ones lie. (The sums lie in the
 * arena, for the verifier would follow each value of a variable.)
 */
OB_FN void ob_slack_reckon(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u64 now)
{
	ob_node_p n;

	ob_pledges_forget(d, now);
	n = ob_tree_head(&d->pledges);
	d->sum.least = (s64)OB_SLACK_FAR;
	d->sum.claims = 0;
	if (!n)
		return;
	d->sum.shares = 0;
	d->sum.since = 0;
	d->sum.near = 0;
	d->sum.past = n;
	d->sum.pairs = 0;
	d->sum.fresh = ob_min(d->shortest, OB_SLACK_FAR);
	if (ob->share_period)
		d->sum.fresh = ob_min(d->sum.fresh, ob->share_period);
	ob_slack_cpus(ob, d, ob_min(n->key > now ? n->key - now : 0, d->sum.fresh), now);
	d->sum.owed = ob_slack_spare(ob, d);
	/* With too many there is no slack; who may want some is seen among the first of them. */
	if (d->uncounted || d->pledges.count > OB_SLACK_MOST)
		d->sum.least = 0;
	for (; n && OB_LOOP; n = ob_tree_next(n)) {
		ob_slack_add(ob, d, OB_SERVER_OF_PLEDGE(n), now);
		if (!d->sum.least && d->sum.claims)
			return;
	}
	if (d->sum.fresh != OB_NEVER)
		ob_slack_gap(ob, d, OB_NULL, d->sum.fresh, now);
}

/* The domain has become tight, or is no more: its servers have other keys. */
OB_FN void ob_slack_turn(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u64 now)
{
	ob_node_p n;

	for (n = ob_tree_head(&d->pledges); n && OB_LOOP; n = ob_tree_next(n)) {
		ob_server_p sv = OB_SERVER_OF_PLEDGE(n);

		if (sv->state != OB_READY)
			continue;
		ob_server_charge(sv, now);
		ob_server_requeue(ob, sv);
	}
	for (n = ob_tree_head(&d->pledges); n && OB_LOOP; n = ob_tree_next(n)) {
		ob_server_p sv = OB_SERVER_OF_PLEDGE(n);

		if (sv->state && sv->waiting)
			ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
	}
}

/* After how long a domain is looked at again that is tight for want of `least` ns on each CPU. */
OB_INLINE u64 ob_slack_wait(ob_domain_p d, u64 least)
{
	s64 wants = (s64)(least * d->sum.cpus) - d->sum.least;
	u64 each = wants > 0 ? (u64)wants / ob_max(d->sum.cpus, 1) : 0;

	return ob_min(ob_max(each, OB_SLACK_SOONEST), OB_SLACK_EVERY);
}

/* Sees whether `d` is tight, and sets when to look again. */
OB_FN void ob_slack_look(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u64 now)
{
	u64 each, lasts, least = d->tight ? 2 * OB_SLACK_LEAST : OB_SLACK_LEAST;
	u8 tight;

	ob_slack_reckon(ob, d, now);
	d->looked = now;
	if (!d->sum.claims) {
		ob_due_set(ob, &d->due, OB_DUE_LOOK, 0);
		return;
	}
	each = d->sum.least > 0 ? (u64)d->sum.least / ob_max(d->sum.cpus, 1) : 0;
	lasts = ob_slack_lasts(ob, each - ob_min(each, OB_SLACK_LEAST / 2));
	/* What was tight stays so until there is some more. Slack that a great share of best effort
	 * may use up sooner than it can be looked at is none. */
	tight = each < least || lasts < OB_SLACK_SOONEST;
	each = tight ? ob_slack_wait(d, least) : lasts;
	ob_due_set(ob, &d->due, OB_DUE_LOOK, now + each);
	if (tight == d->tight)
		return;
	d->tight = tight;
	ob_slack_turn(ob, d, now);
}

/* Something has changed for the better: a tight domain is looked at, not too often. */
OB_INLINE void ob_slack_hope(ob_p ob, ob_domain_p d, u64 now)
{
	u64 at = d->due.at[OB_DUE_LOOK];

	if (d->tight && at)
		ob_due_set(ob, &d->due, OB_DUE_LOOK,
			   ob_min(at, ob_max(now, d->looked + OB_SLACK_LEAST)));
}

/* `sv` begins to stand elsewhere than by its own pair. */
OB_INLINE void ob_slack_claim(ob_p ob, ob_server_p sv, u64 now)
{
	ob_domain_p d = sv->domain;

	if (sv->counted && !d->due.at[OB_DUE_LOOK])
		ob_slack_look(ob, d, now);
}

#endif
