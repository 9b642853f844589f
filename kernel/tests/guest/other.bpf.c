/* SPDX-License-Identifier: GPL-2.0-only */
/* Another sched_ext scheduler, the smallest there is: the kernel's defaults under its own name. */
struct sched_ext_ops {
	char name[128];
} __attribute__((preserve_access_index));

__attribute__((section("license"), used)) char _license[] = "GPL";

__attribute__((section(".struct_ops.link"), used)) struct sched_ext_ops other = {
	.name = "another_one",
};
