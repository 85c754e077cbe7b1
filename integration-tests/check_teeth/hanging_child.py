"""The process of a probe on a device whose streams never write a value: graphs wait forever."""

from __future__ import annotations

from check_teeth.fault import nothing_done
from npu_graph_check import child

if __name__ == "__main__":
    fault = nothing_done("aclrtValueWrite", from_call=2)
    assert fault.apply is not None
    fault.apply()
    child.main()
