/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An ordered tree that answers "the first one that may run on CPU c" in O(log n) however the
 * affinities are mixed: a treap whose nodes carry the union of the CPU masks below them (sub_mask)
 * and the greatest `over` below them (for FCBS: the first server that overran). Equal keys keep
 * their order of insertion.
 *
 * Treap: Seidel and Aragon, "Randomized search trees", Algorithmica 16, 1996: binary search tree
 * by key, heap by random priority, expected depth 2 ln n.
 */
#ifndef OB_TREE_H
#define OB_TREE_H

#include "ob_port.h"

struct ob_node {
	struct ob_node OB_ARENA *left;
	struct ob_node OB_ARENA *right;
	struct ob_node OB_ARENA *parent;
	u64 key;      /* smaller comes first */
	u64 mask;     /* CPUs that may take this node */
	u64 sub_mask; /* union over the subtree */
	u64 over;     /* value that ob_tree_first_over compares */
	u64 sub_over; /* maximum over the subtree */
	u32 prio;
	u32 linked;
};

struct ob_tree {
	struct ob_node OB_ARENA *root;
	struct ob_node OB_ARENA *head; /* the first node of all */
	u32 count;
	u32 random; /* state of a xorshift generator; never 0 */
};

typedef struct ob_node OB_ARENA *ob_node_p;
typedef struct ob_tree OB_ARENA *ob_tree_p;

/* Recomputes n's aggregates from its children; says whether they changed. */
OB_INLINE int ob_node_pull(ob_node_p n)
{
	ob_node_p l = n->left, r = n->right;
	u64 mask = n->mask, over = n->over;
	int changed;

	if (l) {
		mask |= l->sub_mask;
		over = ob_max(over, l->sub_over);
	}
	if (r) {
		mask |= r->sub_mask;
		over = ob_max(over, r->sub_over);
	}
	changed = mask != n->sub_mask || over != n->sub_over;
	n->sub_mask = mask;
	n->sub_over = over;
	return changed;
}

/* Brings the aggregates of n and its ancestors up to date, stopping where nothing changes. */
OB_INLINE void ob_node_pull_up(ob_node_p n)
{
	while (n && OB_LOOP) {
		if (!ob_node_pull(n))
			return;
		n = n->parent;
	}
}

/* Puts n, which already holds its parent's place below `parent`, where `old` was. */
OB_INLINE void ob_node_replace(ob_tree_p t, ob_node_p parent, ob_node_p old, ob_node_p n)
{
	if (!parent)
		t->root = n;
	else if (parent->left == old)
		parent->left = n;
	else
		parent->right = n;
}

/* Turns n up over its parent; in-order sequence and aggregates are kept. */
OB_INLINE void ob_node_rotate_up(ob_tree_p t, ob_node_p n)
{
	ob_node_p p = n->parent, g = p->parent, inner;

	if (p->left == n) {
		inner = n->right;
		p->left = inner;
		n->right = p;
	} else {
		inner = n->left;
		p->right = inner;
		n->left = p;
	}
	if (inner)
		inner->parent = p;
	n->parent = g;
	p->parent = n;
	ob_node_replace(t, g, p, n);
	n->sub_mask = p->sub_mask;
	n->sub_over = p->sub_over;
	ob_node_pull(p);
}

OB_FN void ob_tree_insert(ob_tree_p t OB_ARG, ob_node_p n OB_ARG)
{
	ob_node_p parent = OB_NULL, at = t->root;
	u64 key = n->key, mask = n->mask, over = n->over;
	u32 x = t->random, first = 1;

	/* On the way down every ancestor gains n: no second pass is needed. */
	while (at && OB_LOOP) {
		parent = at;
		at->sub_mask |= mask;
		at->sub_over = ob_max(at->sub_over, over);
		if (key < at->key) {
			at = at->left;
		} else {
			at = at->right;
			first = 0;
		}
	}
	if (first)
		t->head = n;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	t->random = x;
	n->prio = x;
	n->left = OB_NULL;
	n->right = OB_NULL;
	n->parent = parent;
	n->sub_mask = mask;
	n->sub_over = over;
	n->linked = 1;
	t->count++;
	if (!parent)
		t->root = n;
	else if (key < parent->key)
		parent->left = n;
	else
		parent->right = n;
	while (OB_LOOP) {
		ob_node_p p = n->parent;

		if (!p || p->prio >= x)
			break;
		ob_node_rotate_up(t, n);
	}
}

/* Of the subtree at `n` the first node. */
OB_FN u64 ob_node_least(ob_node_p n OB_ARG)
{
	while (n->left && OB_LOOP)
		n = n->left;
	return (u64)n;
}

OB_FN void ob_tree_remove(ob_tree_p t OB_ARG, ob_node_p n OB_ARG)
{
	ob_node_p parent, child;

	if (!n->linked)
		return;
	/* Nothing is to the left of the first, and it is to nobody's right. */
	if (t->head == n)
		t->head = n->right ? (ob_node_p)ob_node_least(n->right) : n->parent;
	while (OB_LOOP) {
		ob_node_p l = n->left, r = n->right;

		if (!l || !r)
			break;
		ob_node_rotate_up(t, l->prio > r->prio ? l : r);
	}
	parent = n->parent;
	child = n->left ? n->left : n->right;
	if (child)
		child->parent = parent;
	ob_node_replace(t, parent, n, child);
	ob_node_pull_up(parent);
	n->linked = 0;
	t->count--;
}

/* Changes which CPUs may take n (and its `over`) without moving it. */
OB_FN void ob_tree_update(ob_node_p n OB_ARG, u64 mask, u64 over)
{
	n->mask = mask;
	n->over = over;
	if (n->linked)
		ob_node_pull_up(n);
}

/* Of the subtree at `n`, the first node whose mask meets `cpus`. There is one. */
OB_FN u64 ob_node_first(ob_node_p n OB_ARG, u64 cpus)
{
	while (n && OB_LOOP) {
		ob_node_p l = n->left;

		if (l && (l->sub_mask & cpus)) {
			n = l;
			continue;
		}
		if (n->mask & cpus)
			break;
		n = n->right;
	}
	return (u64)n;
}

/* The first node whose mask meets `cpus`, or null. */
OB_INLINE ob_node_p ob_tree_first(ob_tree_p t, u64 cpus)
{
	ob_node_p n = t->head;

	/* Most have no narrower affinity. */
	if (!n || (n->mask & cpus))
		return n;
	n = t->root;
	return n && (n->sub_mask & cpus) ? (ob_node_p)ob_node_first(n, cpus) : OB_NULL;
}

/* The first node whose `over` exceeds `than`, or null. */
OB_INLINE ob_node_p ob_tree_first_over(ob_tree_p t, u64 than)
{
	ob_node_p n = t->root;

	if (!n || n->sub_over <= than)
		return OB_NULL;
	while (OB_LOOP) {
		ob_node_p l = n->left;

		if (l && l->sub_over > than) {
			n = l;
			continue;
		}
		if (n->over > than)
			return n;
		n = n->right;
		if (!n)
			break;
	}
	return OB_NULL;
}

/* The last node whose `over` exceeds `than`, or null. */
OB_INLINE ob_node_p ob_tree_last_over(ob_tree_p t, u64 than)
{
	ob_node_p n = t->root;

	if (!n || n->sub_over <= than)
		return OB_NULL;
	while (OB_LOOP) {
		ob_node_p r = n->right;

		if (r && r->sub_over > than) {
			n = r;
			continue;
		}
		if (n->over > than)
			return n;
		n = n->left;
		if (!n)
			break;
	}
	return OB_NULL;
}

/* The first node of all, or null. */
OB_INLINE ob_node_p ob_tree_head(ob_tree_p t)
{
	return t->head;
}

/* The first node whose key is at least `key`, or null. */
OB_FN u64 ob_tree_from(ob_tree_p t OB_ARG, u64 key)
{
	ob_node_p n = t->root, found = OB_NULL;

	while (n && OB_LOOP) {
		if (n->key >= key) {
			found = n;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return (u64)found;
}

/* The node after n, or null. */
OB_FN u64 ob_node_next(ob_node_p n OB_ARG)
{
	ob_node_p p;

	if (n->right)
		return ob_node_least(n->right);
	for (p = n->parent; p && OB_LOOP; p = n->parent) {
		if (p->left == n)
			return (u64)p;
		n = p;
	}
	return 0;
}

/* The same. */
OB_INLINE ob_node_p ob_tree_next(ob_node_p n)
{
	return (ob_node_p)ob_node_next(n);
}

/* The node of greatest `over`, above `than`, among those whose mask meets `cpus`, or null. Both
 * aggregates prune the search: mostly O(log n), at worst all nodes are looked at. */
OB_FN u64 ob_tree_greatest(ob_tree_p t OB_ARG, u64 cpus, u64 than)
{
	ob_node_p n = t->root, best = OB_NULL, next;
	int down = 1;

	while (n && OB_LOOP) {
		next = n->left;
		if (down && next && (next->sub_mask & cpus) && next->sub_over > than) {
			n = next;
			continue;
		}
		if ((n->mask & cpus) && n->over > than) {
			best = n;
			than = n->over;
		}
		next = n->right;
		if (next && (next->sub_mask & cpus) && next->sub_over > than) {
			n = next;
			down = 1;
			continue;
		}
		/* Up to the next one whose left side has been seen. */
		next = n->parent;
		while (next && OB_LOOP) {
			if (next->left == n)
				break;
			n = next;
			next = n->parent;
		}
		n = next;
		down = 0;
	}
	return (u64)best;
}

#endif
