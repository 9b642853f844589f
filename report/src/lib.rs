// SPDX-License-Identifier: GPL-2.0-only
//! The `report` room of Onbeat; see docs/architecture.md.
