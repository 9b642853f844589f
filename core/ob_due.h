/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What time alone will change: one tree of instants, which the shell's alarm stands by.
 *
 * Each server, and each domain, has one node there. It may wait for several instants at once (enum
 * ob_due_kind); the node's key is the first of them, or earlier: an instant that is taken back
 * leaves the node where it is, as it leaves the alarm that is set, and ob_alarm finds nothing due
 * then. So what is set and taken back with every switch costs the tree nothing.
 */
#ifndef OB_DUE_H
#define OB_DUE_H

#include "ob_trace.h"

/* Both functions below name all kinds. */
_Static_assert(OB_DUE_COUNT == 7, "ob_due_link, ob_due_forget");

/* Links `due` where its first instant is. */
OB_FN void ob_due_link(ob_p ob OB_ARG, ob_due_p due OB_ARG)
{
	/* 0, none, becomes the greatest number. */
	u64 first = ob_min(ob_min(due->at[OB_DUE_WINDOW] - 1, due->at[OB_DUE_SPENT] - 1),
			   ob_min(due->at[OB_DUE_REFILL] - 1, due->at[OB_DUE_LAXITY] - 1));

	first = ob_min(first, due->at[OB_DUE_LOOK] - 1);
	first = ob_min(first, ob_min(due->at[OB_DUE_PATIENCE] - 1, due->at[OB_DUE_REVIEW] - 1)) + 1;
	if (due->node.linked) {
		if (first && due->node.key <= first)
			return;
		ob_tree_remove(&ob->due, &due->node);
	}
	if (!first)
		return;
	due->node.key = first;
	ob_tree_insert(&ob->due, &due->node);
	ob->alarm_at = ob_min(ob->alarm_at, first);
}

/* At `at` what `kind` says is due; 0: it is no more. */
OB_INLINE void ob_due_set(ob_p ob, ob_due_p due, u32 kind, u64 at)
{
	if (due->at[kind] == at)
		return;
	due->at[kind] = at;
	/* The node is early enough. */
	if (at && due->node.linked && due->node.key <= at)
		return;
	ob_due_link(ob, due);
}

/* Whether that is due at `now`; it is no more, then. */
OB_INLINE int ob_due_comes(ob_due_p due, u32 kind, u64 now)
{
	if (!due->at[kind] || due->at[kind] > now)
		return 0;
	due->at[kind] = 0;
	return 1;
}

/* Nothing is due at a server. */
OB_INLINE void ob_due_forget(ob_p ob, ob_due_p due)
{
	ob_tree_remove(&ob->due, &due->node);
	due->at[OB_DUE_WINDOW] = 0;
	due->at[OB_DUE_SPENT] = 0;
	due->at[OB_DUE_REFILL] = 0;
	due->at[OB_DUE_LAXITY] = 0;
	due->at[OB_DUE_PATIENCE] = 0;
	due->at[OB_DUE_REVIEW] = 0;
}

#endif
