// SPDX-License-Identifier: GPL-2.0-only
//! The `cli` room of Onbeat; see docs/architecture.md.
