// SPDX-License-Identifier: GPL-2.0-only
//! The `analysis` room of Onbeat; see docs/architecture.md.
