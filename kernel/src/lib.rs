// SPDX-License-Identifier: GPL-2.0-only
//! The `kernel` room of Onbeat; see docs/architecture.md.
