/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One source, two compilers: gcc or clang for the simulator, clang's BPF target for the kernel.
 *
 * In BPF all of the core's memory lies in an arena. Its pointers carry an address space of their
 * own (OB_ARENA) that the compiler turns into the verifier's casts. Loops are guarded by
 * `can_loop` and start from a volatile zero: a constant would make the verifier unroll them. What
 * it knows about a variable that changes in each turn it forgets where that zero is added, and so
 * goes through the loop's body less often.
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

/*
 * Words that are touched without the core's lock (ob_unlocked.h). OB_READ and OB_WRITE are done
 * once and as one. Who sees what OB_PUBLISH writes sees all that was written before it. OB_SWAP
 * writes, and nothing that follows it is done before others see that. OB_SET_BITS, OB_CLEAR_BITS
 * and OB_SWAP_IF lose nobody's write.
 *
 * The simulator has one thread. OB_INTERLEAVED is for the test that has several, one step at a time
 * (core/tests/unlocked.rs).
 */
#define OB_READ(x) (*(volatile __typeof__(x) *)&(x))
#define OB_WRITE(x, to) ((void)(OB_READ(x) = (to)))
#ifdef __BPF__
/* Of the fetching operations the verifier knows swaps and additions in
 * an arena; of the others it knows those whose result nobody uses. */
#define OB_PUBLISH(x, to) smp_store_release(&(x), to)
#define OB_SWAP(x, to) ((void)__sync_lock_test_and_set(&(x), to))
#define OB_SET_BITS(x, bits) ((void)__sync_fetch_and_or(&(x), bits))
#define OB_CLEAR_BITS(x, bits) ((void)__sync_fetch_and_and(&(x), ~(bits)))
#define OB_SWAP_IF(x, is, to) ((void)__sync_val_compare_and_swap(&(x), is, to))
#elif defined(OB_INTERLEAVED)
#define OB_PUBLISH(x, to) __atomic_store_n(&(x), to, __ATOMIC_RELEASE)
#define OB_SWAP(x, to) ((void)__atomic_exchange_n(&(x), to, __ATOMIC_SEQ_CST))
#define OB_SET_BITS(x, bits) ((void)__atomic_fetch_or(&(x), bits, __ATOMIC_SEQ_CST))
#define OB_CLEAR_BITS(x, bits) ((void)__atomic_fetch_and(&(x), ~(bits), __ATOMIC_SEQ_CST))
#define OB_SWAP_IF(x, is, to) ((void)__sync_val_compare_and_swap(&(x), is, to))
#else
#define OB_PUBLISH(x, to) ((void)((x) = (to)))
#define OB_SWAP(x, to) ((void)((x) = (to)))
#define OB_SET_BITS(x, bits) ((void)((x) |= (bits)))
#define OB_CLEAR_BITS(x, bits) ((void)((x) &= ~(bits)))
#define OB_SWAP_IF(x, is, to) ((void)((x) = (x) == (is) ? (to) : (x)))
#endif

#define OB_NULL ((void OB_ARENA *)0)
#define OB_NEVER (~0ULL)
#define OB_BIT(cpu) (1ULL << ((cpu) & 63))

/* Raises the word at `at` to `to` unless it is there. Of two who do so at once one may come to
 * nothing; it is not lowered. */
OB_INLINE void ob_raise(u64 OB_ARENA *at, u64 to)
{
	u64 is = OB_READ(*at);

	if (is < to)
		OB_SWAP_IF(*at, is, to);
}

OB_INLINE u64 ob_min(u64 a, u64 b)
{
	return a < b ? a : b;
}

OB_INLINE u64 ob_max(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* How many bits of x are set. */
OB_INLINE u64 ob_count(u64 x)
{
	return (u64)__builtin_popcountll(x);
}

/* Index of the lowest set bit of x; x must not be 0. */
#ifdef __BPF__
/* BPF has no such instruction. The product's upper six bits are others for each bit, for a de
 * Bruijn sequence is shifted by it (Leiserson, Prokop and Randall, "Using de Bruijn sequences to
 * index a 1 in a computer word", 1998). */
static const u8 ob_bit_index[64] = {
    0,  1,  2,  7,  3,  13, 8,  19, 4,  25, 14, 28, 9,  34, 20, 40, 5,  17, 26, 38, 15, 46,
    29, 48, 10, 31, 35, 54, 21, 50, 41, 57, 63, 6,  12, 18, 24, 27, 33, 39, 16, 37, 45, 47,
    30, 53, 49, 56, 62, 11, 23, 32, 36, 44, 52, 55, 61, 22, 43, 51, 60, 42, 59, 58,
};

OB_INLINE u32 ob_lowest(u64 x)
{
	return ob_bit_index[(x & -x) * 0x0218a392cd3d5dbfULL >> 58];
}
#else
OB_INLINE u32 ob_lowest(u64 x)
{
	return (u32)__builtin_ctzll(x);
}
#endif

#endif
