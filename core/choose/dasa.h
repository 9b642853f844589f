/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DASA without dependencies (Clark, "Scheduling dependent real-time activities", 1990): the job
 * that yields most for what it still needs comes first and is taken into the plan if all that are
 * in it still end in time. On several CPUs it is put where it fits first. Without overload on one
 * CPU all fit, and it is EDF.
 */
OB_FN void ob_dasa_choose(ob_p ob OB_ARG, u64 now)
{
	ob_node_p n = ob_tree_head(&ob->plan.dense);
	u32 lane;

	for (; n && OB_LOOP; n = (ob_node_p)ob_choice_next(n)) {
		ob_choice_p job = OB_CHOICE_OF(n);

		/* Who does not fit alone fits nowhere. */
		if (now + job->left > job->due)
			continue;
		for (lane = OB_ZERO; lane < ob->plan.lanes && OB_LOOP; lane++)
			if (ob_lane_take(ob, lane, job, now))
				break;
	}
	ob_lanes_rank(ob);
}
