/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One source, two compilers: gcc or clang for the simulator, clang's BPF target for the kernel.
 *
 * In BPF all of the core's memory lies in an arena. Its pointers carry an address space of their
 * own (OB_ARENA) that the compiler turns into the verifier's casts. Loops are guarded by
 * `can_loop` and start from a volatile zero: a constant would make the verifier unroll them.
 *
 * OB_FN functions are global there: the verifier looks at each once, for any arguments, and not
 * again for every call and state (which took a million instructions and 20 s of an emulated CPU).
 * Pointers they are given carry OB_ARG.
 */
#ifndef OB_PORT_H
#define OB_PORT_H

#ifdef __BPF__
#define OB_ARENA __arena
#define OB_LOOP can_loop
#define OB_FN __attribute__((noinline))
#define OB_ARG __attribute__((btf_decl_tag("arg:arena")))
#define OB_INLINE static __attribute__((always_inline, unused))
static volatile unsigned long long ob_volatile_zero;
#define OB_ZERO ob_volatile_zero
#else
typedef unsigned char u8;
typedef int s32;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;
#define OB_ARENA
#ifdef OB_COUNT_STEPS
/* Turns of loops in this thread so far: what an operation costs, whatever the machine. */
static _Thread_local u64 ob_steps;
#define OB_LOOP (++ob_steps)
#else
#define OB_LOOP 1
#endif
#define OB_FN static __attribute__((unused))
#define OB_ARG
#define OB_INLINE static inline __attribute__((always_inline, unused))
#define OB_ZERO 0ULL
#endif

#define OB_NULL ((void OB_ARENA *)0)
#define OB_NEVER (~0ULL)
#define OB_BIT(cpu) (1ULL << ((cpu) & 63))

OB_INLINE u64 ob_min(u64 a, u64 b)
{
	return a < b ? a : b;
}

OB_INLINE u64 ob_max(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* Index of the lowest set bit of x; x must not be 0. */
#ifdef __BPF__
/* BPF has no such instruction. Global: each of its branches would double the verifier's paths. */
OB_FN u32 ob_lowest(u64 x)
{
	u32 n = 0;

	x &= -x;
	n += (x & 0xFFFFFFFF00000000ULL) ? 32 : 0;
	n += (x & 0xFFFF0000FFFF0000ULL) ? 16 : 0;
	n += (x & 0xFF00FF00FF00FF00ULL) ? 8 : 0;
	n += (x & 0xF0F0F0F0F0F0F0F0ULL) ? 4 : 0;
	n += (x & 0xCCCCCCCCCCCCCCCCULL) ? 2 : 0;
	n += (x & 0xAAAAAAAAAAAAAAAAULL) ? 1 : 0;
	return n;
}
#else
OB_INLINE u32 ob_lowest(u64 x)
{
	return (u32)__builtin_ctzll(x);
}
#endif

#endif
