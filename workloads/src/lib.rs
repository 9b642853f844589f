// SPDX-License-Identifier: GPL-2.0-only
//! The `workloads` room of Onbeat; see docs/architecture.md.
