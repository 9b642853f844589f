/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * BeRate: Banachowski and Brandt, "Better real-time response for time-share scheduling", WPDRTS
 * 2003. Nobody says which threads are periodic. Each has a deadline, by which its part of the CPU
 * would yield what it is likely to use until it sleeps, and the earliest runs: who computes for a
 * while and then sleeps is done when its part allows, if not before. The paper's deadline is
 * now + e * L / q, of e ns at a time in an epoch L in which the thread has the quantum q. In
 * virtual time, which passes as fast as epochs do, that is v + e / w, whatever the load; and v,
 * what the thread has had, is paid but for a little, so nobody has much more than its part
 * (docs/decisions.md).
 */
#ifndef OB_OTHERS_BERATE_H
#define OB_OTHERS_BERATE_H

/* Who uses more than that before it sleeps is no periodic thread, but bound by the CPU, ns. */
#define OB_BERATE_MOST 50000000ULL

/* Who slept begins that far behind the others, ns, if it had so much less than its part: what
 * jobs need varies, and what one needs less another may need more. */
#define OB_BERATE_CREDIT 20000000ULL

/* Who is bound by the CPU has its deadline so far away, ns: those who sleep may lead it by as much
 * in virtual time, at most. */
#define OB_BERATE_FAR OB_OTHERS_FAR

/* As for every order; for the verifier, which looks at these once. */
OB_FN u64 ob_berate_virtual(ob_task_p t OB_ARG, u64 ran)
{
	return ob_virtual(t, ran);
}

/* The same where it counts: nearly all are of nice 0. */
OB_INLINE u64 ob_berate_own(ob_task_p t, u64 ran)
{
	return t->weight == OB_WEIGHT ? ran : ob_berate_virtual(t, ran);
}

OB_FN u64 ob_berate_short(ob_p ob OB_ARG)
{
	return ob_others_turn(ob);
}

OB_INLINE u64 ob_berate_turn(ob_p ob)
{
	return ob_others_are_few(ob) ? ob->slice : ob_berate_short(ob);
}

/* What one of nice 0 counts in the average of those who wait. */
#define OB_BERATE_PARTS (OB_WEIGHT / 16)

/* By how much who has woken may be ahead of the others, and still go before them: a turn, and less
 * in a crowd, for each of it may be so far ahead. */
OB_INLINE u64 ob_berate_margin(ob_p ob)
{
	u64 few = 8 * ob->nr_cpus, count = ob->best_effort.count;
	u64 turn = ob_berate_turn(ob);

	return count <= few ? turn : turn * few / count;
}

/* What jobs that take longer than usual add to a lead, ns. */
#define OB_BERATE_OVER 14000000ULL

/* By what they may where nobody waits. */
#define OB_BERATE_MOST_LEAD (OB_BERATE_FAR - OB_BERATE_OVER)

/* On how many CPUs those are that `t` shares its CPUs with: if it is bound, all of the others may
 * be where it is, and none is where a reservation runs. */
OB_INLINE u64 ob_berate_shares(ob_p ob, ob_task_p t)
{
	return ob_max(ob_count(ob->online & ~ob->reserved & t->may), 1);
}

/* The same where the stack has room for a call. */
OB_FN u64 ob_berate_cpus(ob_p ob OB_ARG, ob_task_p t OB_ARG)
{
	return ob_berate_shares(ob, t);
}

/* By what they may, and not less than a margin: beside n others each has 10 s / (n + 1) of 10 s, of
 * which that and what is added are the 50th part (sim/tests/cheats.rs). Who weighs more than nice 0
 * counts as so many more; who has a CPU weighs what those who wait, and one of nice 0, do on
 * average. */
OB_FN u64 ob_berate_lead(ob_p ob OB_ARG, ob_task_p t OB_ARG)
{
	u64 cpus = ob_berate_shares(ob, t);
	u64 count = ob->best_effort.count, has, lead;
	u64 wait = ob_max(ob->parts, OB_BERATE_PARTS * count);
	u64 own = OB_BERATE_PARTS * ob_max(t->weight, OB_WEIGHT) / OB_WEIGHT;
	ob_task_p other;

	if (count) {
		has = (wait + OB_BERATE_PARTS) / (count + 1);
	} else {
		/* Nobody waits: as who has its CPU. The same, without a division, as for most. */
		other = OB_READ(ob_cpu(ob, t->cpu)->other);
		has = OB_BERATE_PARTS;
		if (other && other != t && other->weight > OB_WEIGHT)
			has = has * other->weight / OB_WEIGHT;
		if (has + own == 2 * OB_BERATE_PARTS)
			return OB_BERATE_MOST_LEAD;
	}
	lead = 2 * OB_BERATE_FAR * OB_BERATE_PARTS * cpus / (wait + cpus * (has + own));
	return ob_max(lead, OB_BERATE_OVER + ob_berate_margin(ob)) - OB_BERATE_OVER;
}

/* How far away, in virtual time, the deadline for the next `use` ns is: by no more than that of who
 * is bound by the CPU, which it may lead by `lead`. */
OB_INLINE u64 ob_berate_far(ob_task_p t, u64 use, u64 lead)
{
	return ob_min(ob_berate_virtual(t, use) + OB_BERATE_FAR - lead, OB_BERATE_FAR);
}

/* `t` has a deadline for the next `use` ns, which expires after `most` ns. */
OB_INLINE void ob_berate_ask(ob_task_p t, u64 use, u64 most, u64 lead)
{
	t->due = t->vtime + ob_berate_far(t, use, lead);
	t->expires = t->used + most;
}

/* Who is known to use little has that much at least before its deadline expires, ns. */
#define OB_BERATE_LEAST 1000000ULL

/* `t` has woken. Its jobs vary: up to twice as much is done by the same deadline, where turns need
 * not be shorter, but no more than it may lead by: its deadline may be no nearer than others'. */
OB_INLINE void ob_berate_woke(ob_p ob, ob_task_p t, u64 turn, u64 lead)
{
	/* Of a new one nothing is known: a slice. */
	u64 use = t->burst ?: ob->slice, most = ob_max(use + t->burst, OB_BERATE_LEAST);

	most = ob_min(
	    most, turn < ob->slice ? turn : ob_max(lead * t->weight / OB_WEIGHT, OB_BERATE_LEAST));
	ob_berate_ask(t, ob_min(use, most), most, lead);
}

/* Who is known to use next to nothing does not wait for others to catch up. */
OB_INLINE int ob_berate_light(ob_task_p t)
{
	return t->burst && t->burst <= OB_WAKE_GRAIN;
}

/* No more than that is held against it, ns. */
#define OB_BERATE_BUCKET 10000000000ULL

/* What light threads use is averaged over about so long, ns. */
#define OB_BERATE_SPAN (1ULL << 27)

/* `t`, which is light, has woken at `now`: it uses what it is likely to, about then. (The kernel's
 * own threads are few, and placed as if they had waited for long.) */
OB_FN void ob_berate_count(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 now)
{
	u64 since = now > ob->lights_at ? now - ob->lights_at : 0;

	if (t->kernel)
		return;
	if (since < OB_BERATE_SPAN)
		ob->lights -= ob->lights * since / OB_BERATE_SPAN;
	else
		ob->lights = 0;
	ob->lights += t->burst;
	ob->lights_at += since;
}

/* Where in virtual time the best effort on `c` is at `now`, or OB_NEVER. */
OB_FN u64 ob_berate_runs(ob_cpu_p c OB_ARG, u64 now)
{
	ob_task_p other = OB_READ(c->other);

	if (!other || other->server)
		return OB_NEVER;
	return OB_READ(other->vtime) +
	       ob_berate_virtual(other, now > c->started ? now - c->started : 0);
}

/* Whether one that runs on a CPU which `t` asks at `now` has had less, by more than a sleeper may
 * be behind. It does not wait, so `from` says nothing of it. */
OB_FN u64 ob_berate_displaces(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 now)
{
	u64 had = t->vtime - ob_min(OB_BERATE_CREDIT + ob_berate_margin(ob), t->vtime);
	u32 last = ob_wake_last(ob, t);
	u64 cpus = ob_wake_looks(ob, t, last);

	for (; cpus && OB_LOOP; cpus = (cpus & (cpus - 1)) + OB_ZERO)
		if (ob_berate_runs(ob_cpu(ob, last + ob_lowest(cpus)), now) < had)
			return 1;
	return 0;
}

/* Whether `t`, which is light and has woken, had no more than its part: by the clock (a leaky
 * bucket of a slice, ob_berate_takes), or by where it stands, for others come and go. By that alone
 * it would wait each time that where they are on average jumps, by what leads are long. At `most`
 * it may have had more, which is forgotten. Whom another has woken may come from a faster CPU, and
 * the clock does not know that; where light ones want all there is, order among them is best. */
OB_FN u64 ob_berate_modest(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 from, u64 most)
{
	u64 woke = ~t->node.over;

	/* A word of another order may be anything. */
	t->aim = ob_max(ob_min(t->aim, woke + OB_BERATE_BUCKET), woke);
	if (t->told) {
		if (ob->lights > ob_berate_cpus(ob, t) * OB_BERATE_SPAN * 3 / 4)
			return 0;
	} else if (t->aim <= woke + ob->slice) {
		return 1;
	}
	return t->vtime < most && t->vtime <= from + ob_berate_margin(ob) &&
	       !ob_berate_displaces(ob, t, woke);
}

/* Its deadline: before those with whom it shares CPUs, which are at `from`, and who has its CPU or
 * would have it next, who may have come when others were far behind. */
OB_FN u64 ob_berate_first(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 from)
{
	u64 due = ob_min(t->due, from - ob_min(OB_BERATE_CREDIT, from) + t->burst);
	ob_node_p first = ob_tree_first(&ob->best_effort, t->cpus);
	ob_task_p other = OB_READ(ob_cpu(ob, t->cpu)->other);

	if (other && !other->server && other->expires)
		due = ob_min(due, other->due - 1);
	return first ? ob_min(due, first->key) : due;
}

/* Whether `t`, which uses little, has been woken by one that goes on, and may have more for it and
 * for others. Served at once each would sleep again after a message, before those that wait for
 * their slices and could fill their queues meanwhile. A waker that has run for a short while only
 * is most often done: who acts upon what it brings does not wait. */
OB_FN u64 ob_berate_chatty(ob_p ob OB_ARG, ob_task_p t OB_ARG)
{
	ob_cpu_p c = ob_cpu(ob, t->told - 1u);
	ob_task_p waker = OB_READ(c->other);
	u64 now = ~t->node.over;

	return t->burst && t->burst <= OB_WAKE_GRAIN && waker && !waker->server &&
	       waker->used + (now > c->started ? now - c->started : 0) > OB_WAKE_GRAIN;
}

/* `t`, which uses little, has woken: it goes first if it had no more than its part. */
OB_FN void ob_berate_hurry(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 from, u64 most)
{
	ob_berate_count(ob, t, ~t->node.over);
	if (ob_berate_modest(ob, t, from, most))
		t->due = ob_berate_first(ob, t, from);
}

OB_INLINE void ob_berate_place(ob_p ob, ob_task_p t, u64 most, u64 from)
{
	u64 chatty = from != OB_NEVER && t->told && ob_berate_chatty(ob, t);
	/* A new one has had no less than its part. */
	u64 credit = t->told    ? ob->slice / (chatty ? 8 : 2)
		     : t->vtime ? OB_BERATE_CREDIT
				: ob->slice;
	u64 ahead = t->vtime || from == OB_NEVER ? 0 : credit;
	u64 lead = from == OB_NEVER ? 0 : ob_berate_lead(ob, t);

	/* What it may have led others by when it woke, and used then, it has had here, whoever
	 * waits now: else friends that wait for a moment would have it forgotten. And the first may
	 * be behind the others by what it had too little. */
	if (most != OB_NEVER && t->burst)
		most += OB_BERATE_MOST_LEAD + ob_berate_virtual(t, t->burst) +
			(from != OB_NEVER ? OB_BERATE_CREDIT : 0);
	if (from != OB_NEVER)
		t->vtime = ob_max(ob_min(t->vtime, most), from - ob_min(credit, from));
	if (from != OB_NEVER) {
		ob_berate_woke(ob, t, ob_berate_turn(ob), chatty ? 0 : lead);
	} else if (!t->expires) {
		/* From a reservation, awake: it has had more than that, and is the equal of who is
		 * bound by the CPU. With a nearer deadline each time it would stay before them. */
		t->due = t->vtime + OB_BERATE_FAR;
		t->expires = t->used + ob_berate_turn(ob);
	}
	if (from != OB_NEVER && !chatty && ob_berate_light(t))
		ob_berate_hurry(ob, t, from, most);
	t->node.key = t->due - (t->vtime > most ? t->vtime - most : 0);
	/* Before its deadline who has little weight may be far behind. What a new one has in
	 * advance puts others no further back, or each of a crowd that comes would go before the
	 * last. */
	t->at = ob_min(t->vtime + ahead, most);
	t->parts = (u32)ob_max(t->weight / 16, 1);
	t->notable = 1;
}

/* As under `fair`: what it was put forward for counts once it is served. */
OB_INLINE void ob_berate_taken(ob_p ob, ob_task_p t)
{
	t->vtime -= t->due - t->node.key;
	t->due = t->node.key;
}

/* Who waited may be as far behind `c` as what it asked for is long; who is bound by the CPU twice
 * as far, for others run on past their deadlines until these expire. */
OB_FN void ob_berate_pull(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_task_p t OB_ARG)
{
	u64 asked = t->expires && t->due > t->vtime ? t->due - t->vtime : 0;
	u64 lag = ob_berate_virtual(t, OB_BERATE_CREDIT);

	lag = ob_max(lag, asked > OB_BERATE_MOST / 2 ? 2 * asked : asked) + ob->slice;
	if (t->vtime + lag < c->vtime) {
		t->due += c->vtime - ob->slice - t->vtime;
		t->vtime = c->vtime - ob->slice;
	}
}

/* Who did not wait, as nobody else did, has no deadline yet. */
OB_INLINE void ob_berate_begin(ob_p ob, ob_cpu_p c, ob_task_p t)
{
	if (t->vtime + ob->slice < c->vtime)
		ob_berate_pull(ob, c, t);
	if (!t->expires)
		ob_berate_woke(ob, t, ob->slice,
			       ob->best_effort.count ? ob_berate_lead(ob, t) : OB_BERATE_MOST_LEAD);
}

/* Whether, once `t` has run for `ran` ns more, its deadline will have expired. The kernel's ticks
 * end slices a little early. */
OB_INLINE int ob_berate_expires(ob_task_p t, u64 ran)
{
	return t->used + ran + OB_WAKE_GRAIN >= t->expires;
}

/* Who goes on past its deadline's expiration is bound by the CPU: a slice, and so on. In the paper
 * its deadline is an epoch away, in which it has its quantum, some 50 ms, scaled by weight. With
 * one as near as a slice, who sleeps earlier than that would wait until nothing of its part is left
 * but what it needs on average. In a crowd deadlines say whose turn it is. */
OB_FN void ob_berate_ran(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 ran)
{
	u64 turn;

	t->vtime += ob_berate_own(t, ran);
	t->used += ran;
	t->due = ob_max(t->due, t->vtime);
	if (!ob_berate_expires(t, 0))
		return;
	turn = ob_berate_turn(ob);
	if (turn == ob->slice && t->used < ob->slice) {
		ob_berate_ask(t, t->used, ob_max(t->used, OB_BERATE_LEAST), ob_berate_lead(ob, t));
		return;
	}
	t->due = t->vtime + OB_BERATE_FAR;
	t->expires = t->used + turn;
}

/* By how many times more, in 16ths, others there are than wait on average: under fluid sharing who
 * is light would be there for longer than it is, as it is served at once here. If all who are light
 * use U of the CPUs, those who never sleep have 1 - U, so they are that part of all there are. None
 * has been counted for long if that was before a span before `began`. */
OB_INLINE u64 ob_berate_more(ob_p ob, u64 cpus, u64 began)
{
	u64 span = cpus * OB_BERATE_SPAN, light = OB_READ(ob->lights);

	if (light <= span / 16 || OB_READ(ob->lights_at) + OB_BERATE_SPAN < began)
		return 16;
	return 16 * span / (span - ob_min(light, span - span / 16));
}

/* How long `t`, who is light, would take on its part of the clock for what it `used`, which it
 * `had` in virtual time. Who has another CPU weighs what those do who wait, or is of nice 0. */
OB_INLINE u64 ob_berate_takes(ob_p ob, ob_task_p t, u64 used, u64 had)
{
	u64 shared = ob_berate_cpus(ob, t), parts = ob->parts;
	u64 each = ob_max(parts / ob_max(ob->best_effort.count, 1), OB_BERATE_PARTS);

	had = had * (parts + (shared - 1) * each) / OB_BERATE_PARTS;
	return (used + had * ob_berate_more(ob, shared, ob_cpu(ob, t->cpu)->started) / 16) / shared;
}

/* Beside others of less weight n is no less than so many 16ths: in 10 s, with a lead, who wakes
 * beside one of them would have a 50th part more than its own. */
#define OB_BERATE_WAIVE_LEAST 11

/* `t` sleeps after it has used so much: where it then is. Who needs just its part, in jobs that
 * vary, would owe ever more by chance, as what it has had too little is forgotten beyond
 * OB_BERATE_CREDIT. So of what it uses before it sleeps an 80th part is no debt beside one other;
 * beside n by n * n less, as all who sleep may take it from the same. Others of more weight than
 * its own count as so many more, of less as less; each other CPU has one of nice 0. Who uses little
 * does not need it, and saturated CPUs with it. */
OB_FN u64 ob_berate_pay(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 used)
{
	u64 cpus = ob_berate_cpus(ob, t);
	u64 all = 16 * (ob->parts + (cpus - 1) * OB_BERATE_PARTS);
	/* So that the square fits. */
	u64 n = ob_min(all / (cpus * ob_max(t->weight / 16, 1)), 1 << 20);
	u64 had = ob_berate_virtual(t, used);
	u64 waived = 0;

	n = ob_max(n, OB_BERATE_WAIVE_LEAST);
	if (t->burst > OB_WAKE_GRAIN)
		waived = 16 * 16 * had / (80 * n * n);
	else
		t->aim += ob_berate_takes(ob, t, used, had);
	return t->vtime - ob_min(waived, t->vtime);
}

/* What a thread did before it slept for the first time, its beginning, says little of what it will
 * do, and is no debt: a crowd would take seconds to come that far. It is placed as a new one is. */
OB_INLINE void ob_berate_slept(ob_p ob, ob_task_p t)
{
	u64 used = t->used > OB_BERATE_MOST ? ob->slice : t->used;

	if (!t->burst) {
		used = ob_min(used, OB_WAKE_GRAIN);
		t->vtime = 0;
	} else if (ob->best_effort.count) {
		t->vtime = ob_berate_pay(ob, t, used);
	} else {
		/* The same where nobody waits: the clock yields it at once. */
		t->aim += used;
		if (t->burst > OB_WAKE_GRAIN)
			t->vtime -= ob_min(ob_berate_own(t, used) / 80, t->vtime);
	}
	/* A slice is what the shell guesses of a new one, and of who is bound by the CPU. */
	t->burst = ob_max(t->burst == ob->slice ? used : (t->burst + used) / 2, 1);
	t->used = 0;
	t->expires = 0;
}

OB_INLINE u64 ob_berate_key(ob_p ob, ob_task_p t)
{
	/* Who began to run under another order has none yet. */
	return t->expires ? t->due : t->vtime;
}

/* Its key once its deadline has expired, `ran` ns from now; in a crowd it is less. */
OB_INLINE u64 ob_berate_renewed(ob_p ob, ob_task_p t, u64 ran)
{
	u64 used = t->used + ran;

	return t->vtime + ob_berate_virtual(t, ran) +
	       (used < ob->slice ? ob_berate_far(t, used, ob_berate_lead(ob, t)) : OB_BERATE_FAR);
}

/* By what `t` goes before whom it takes the CPU from: messages that come one by one are best read
 * together. */
OB_INLINE u64 ob_berate_threshold(ob_task_p t)
{
	return t->node.key + (t->told ? OB_TOLD_GRAIN : 0);
}

OB_INLINE u64 ob_berate_beats(ob_p ob, ob_task_p t, ob_task_p other, u64 ran)
{
	u64 key = ob_berate_expires(other, ran)
		      ? ob_berate_renewed(ob, other, ran)
		      : ob_max(other->due, other->vtime + ob_berate_virtual(other, ran));

	return key > ob_berate_threshold(t);
}

/* ns until the deadline of `t` expires. */
OB_INLINE u64 ob_berate_left(ob_task_p t)
{
	return t->expires - ob_min(t->used + OB_WAKE_GRAIN, t->expires);
}

/* ns until `other`, which runs, stands behind `key`, rounded up, or until its deadline expires. */
OB_INLINE u64 ob_berate_within(ob_task_p other, u64 key)
{
	u64 left = ob_berate_left(other);

	if (other->due > key)
		return 0;
	return ob_min(left, (key + 1 - ob_min(other->vtime, key)) * other->weight / OB_WEIGHT + 1);
}

OB_INLINE u64 ob_berate_passes(ob_p ob, ob_cpu_p c, ob_task_p other, ob_task_p t)
{
	return c->started + ob_max(ob_berate_within(other, ob_berate_threshold(t)), OB_WAKE_GRAIN);
}

OB_INLINE u64 ob_berate_look(ob_p ob, ob_cpu_p c, ob_task_p other, ob_task_p first)
{
	u64 at = c->started + 2 * OB_WAKE_GRAIN, left = ob_berate_left(other);
	u64 key = ob_berate_threshold(first), within = ob_berate_within(other, key);

	/* The slice ends by itself. */
	if (within == left &&
	    (left + OB_WAKE_GRAIN >= ob->slice || ob_berate_renewed(ob, other, left) <= key))
		return OB_NEVER;
	return ob_max(at, c->started + within);
}

OB_INLINE u64 ob_berate_bound(ob_p ob)
{
	return OB_BERATE_FAR;
}

#endif
