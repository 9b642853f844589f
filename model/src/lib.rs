// SPDX-License-Identifier: GPL-2.0-only
//! The `model` room of Onbeat; see docs/architecture.md.
