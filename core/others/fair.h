/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weighted fair queueing by virtual time: who waits for longest in virtual time is next. Who sleeps
 * much has an advantage of up to a slice when it wakes, the less the more it uses when awake, and
 * by it may have the CPU at once.
 */
#ifndef OB_OTHERS_FAIR_H
#define OB_OTHERS_FAIR_H

/* How far behind the others who has slept begins: less the more it uses when awake, so that who
 * uses little goes before those who woke when it did and use much. */
OB_INLINE u64 ob_fair_credit(ob_p ob, ob_task_p t)
{
	u64 most = t->told ? ob->slice / 2 : ob->slice;

	return most - ob_min(t->burst, most);
}

OB_INLINE void ob_fair_place(ob_p ob, ob_task_p t, u64 most, u64 from)
{
	t->node.key = ob_min(t->vtime, most);
	if (from != OB_NEVER) {
		t->vtime = ob_max(t->node.key, from - ob_min(ob_fair_credit(ob, t), from));
		t->node.key = t->vtime;
	}
	t->at = t->node.key;
	t->expires = 0;
	t->parts = 1;
	t->notable = t->weight > OB_WEIGHT || (!t->told && t->burst <= OB_WAKE_GRAIN);
}

/* Its place counts once it is served: who changes CPUs takes none back with it. */
OB_INLINE void ob_fair_taken(ob_p ob, ob_task_p t)
{
	t->vtime = t->node.key;
}

/* One that slept gets no more than a slice of advantage over those who did not. */
OB_INLINE void ob_fair_begin(ob_p ob, ob_cpu_p c, ob_task_p t)
{
	if (t->vtime + ob->slice < c->vtime)
		t->vtime = c->vtime - ob->slice;
	t->expires = 0;
}

OB_INLINE void ob_fair_ran(ob_p ob, ob_task_p t, u64 ran)
{
	t->vtime += ob_virtual(t, ran);
	t->used += ran;
}

OB_INLINE void ob_fair_slept(ob_p ob, ob_task_p t)
{
	t->burst = (t->burst + ob_min(t->used, ob->slice)) / 2;
	t->used = 0;
}

OB_INLINE u64 ob_fair_key(ob_p ob, ob_task_p t)
{
	return t->vtime;
}

OB_INLINE u64 ob_fair_beats(ob_p ob, ob_task_p t, ob_task_p other, u64 ran)
{
	return other->vtime + ob_virtual(other, ran) >= t->at + OB_WAKE_GRAIN;
}

/* Rounded up: who looks then finds that it has passed, and need not look again. */
OB_INLINE u64 ob_fair_passes(ob_p ob, ob_cpu_p c, ob_task_p other, ob_task_p t)
{
	u64 at = t->at, left = at + OB_WAKE_GRAIN - ob_min(other->vtime, at);

	return c->started + ob_max(left * other->weight / OB_WEIGHT + 1, OB_WAKE_GRAIN);
}

/* Soon if the first is known to use little. Who uses whole slices can wait for one, or for as much
 * of it as gives who runs the same virtual time, if that has the less weight: a slice of it is more
 * than its part of a second. */
OB_INLINE u64 ob_fair_look(ob_p ob, ob_cpu_p c, ob_task_p other, ob_task_p first)
{
	u64 at = OB_NEVER;

	if (other->weight < first->weight)
		at = c->started + ob_max(ob->slice * other->weight / ob_max(first->weight, 1),
					 2 * OB_WAKE_GRAIN);
	if (first->told || first->burst > OB_WAKE_GRAIN)
		return at;
	return ob_min(at,
		      ob_max(ob_fair_passes(ob, c, other, first), c->started + 2 * OB_WAKE_GRAIN));
}

OB_INLINE u64 ob_fair_bound(ob_p ob)
{
	return 0;
}

#endif
