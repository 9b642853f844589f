// SPDX-License-Identifier: GPL-2.0-only
//! The `lab` room of Onbeat; see docs/architecture.md.
