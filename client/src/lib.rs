// SPDX-License-Identifier: GPL-2.0-only
//! The `client` room of Onbeat; see docs/architecture.md.
