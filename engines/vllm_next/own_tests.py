"""vLLM 0.30.0's own tests of splitting, dispatching and breakable graphs, with the engine and ours.

Run as ``cann-sim run -- python -m engines.vllm_next.own_tests``. As engines/vllm/own_tests.py. With
ours, the tests of vLLM's breakable wrapper get the wrapper of our adapter, whose graphs
npu-graph-runtime captures. Rows go to build/engines/vllm-next-own-tests.json.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from engines.vllm.own_tests import PLATFORMS, OwnTests, name_plugins
from engines.vllm_next.without_device import stand_ins

if TYPE_CHECKING:
    from collections.abc import Callable


def prepare(side: str) -> object:
    """Declare what importing the engine needs; with ours, put our wrapper in place of vLLM's."""
    kept = stand_ins.prepare()
    # In the engine's own order: its modules import each other.
    importlib.import_module("vllm_ascend.worker.worker")
    platform = importlib.import_module("vllm_ascend.platform").NPUPlatform
    # The tests' configuration is a mock, from which the platform reads numbers.
    platform.set_additional_forward_context = classmethod(lambda *_given, **_options: {})
    if side == "ours":
        use_ours()
    return kept


def use_ours() -> None:
    """Put the adapter's wrapper in place of the one that tests import from vLLM."""
    from npu_graph_runtime import NpuDevice
    from vllm_npu_graph.v0_30.breakable_graphs import BreakableGraphs

    class Wrapper(BreakableGraphs):  # type: ignore[misc]
        """Takes the arguments of vLLM's."""

        def __init__(
            self, runnable: Callable[..., Any], vllm_config: Any, runtime_mode: Any = None
        ) -> None:
            super().__init__(runnable, vllm_config, device=NpuDevice(0))
            self.runtime_mode = runtime_mode

    module: Any = importlib.import_module("vllm.compilation.breakable_cudagraph")
    module.BreakableCUDAGraphWrapper = Wrapper


def main() -> int:
    """Run the tests on both sides; return 1 if one fails, or ends otherwise with ours."""
    session = OwnTests(
        name="vllm-next-own-tests",
        module=__spec__.name,
        source="vllm-0.30.0.tar.gz",
        tests=(
            "tests/compile/test_graph_partition.py",
            "tests/v1/cudagraph/test_cudagraph_dispatch.py",
            "tests/v1/cudagraph/test_cudagraph_manager.py",
            "tests/v1/cudagraph/test_breakable_cudagraph.py",
        ),
        sides={side: name_plugins(platform) for side, platform in PLATFORMS.items()},
        prepare=prepare,
    )
    return session.run(__doc__)


if __name__ == "__main__":
    sys.exit(main())
