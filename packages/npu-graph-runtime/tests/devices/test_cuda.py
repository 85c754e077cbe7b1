from __future__ import annotations

import pytest
import torch

from npu_graph_runtime import CudaDevice, GraphDevice
from npu_graph_runtime.errors import DeviceUnavailableError


def test_cuda_device_fits_the_seam() -> None:
    # Checked by mypy; the contract runs where there is a GPU.
    fits: type[GraphDevice] = CudaDevice
    assert fits.__name__ == "CudaDevice"


def test_cuda_device_that_is_not_there_says_what_torch_sees() -> None:
    count = torch.cuda.device_count()
    with pytest.raises(
        DeviceUnavailableError, match=rf"opening device cuda:{count}: torch .* sees"
    ):
        CudaDevice(count)
