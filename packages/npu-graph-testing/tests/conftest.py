"""Assertions of the contract tell what they compared."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("npu_graph_testing.device_contract")
