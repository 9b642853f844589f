// SPDX-License-Identifier: GPL-2.0-only
/* Reserves 5 ms of CPU time every 20 ms and uses about 1 ms of it, ten times. */
#include <onbeat.h>
#include <stdio.h>

int main(void)
{
	const struct onbeat_params params = {
		.name = "beat",
		.budget_ns = 5000000,
		.period_ns = 20000000,
		.marks = 1,
	};
	struct onbeat *beat;
	uint64_t late;

	if (onbeat_reserve(&params, &beat) < 0) {
		fprintf(stderr, "beat: %s\n", onbeat_message());
		return 1;
	}
	for (int job = 0; job < 10; job++) {
		onbeat_wait_period(beat, &late);
		printf("job %d begins %llu us after its release\n", job,
		       (unsigned long long)late / 1000);
		for (volatile int work = 0; work < 500000; work++)
			;
	}
	if (onbeat_release(beat) < 0) {
		fprintf(stderr, "beat: %s\n", onbeat_message());
		return 1;
	}
	return 0;
}
