// SPDX-License-Identifier: GPL-2.0-only
//! The `sim` room of Onbeat; see docs/architecture.md.
