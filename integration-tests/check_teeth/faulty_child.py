"""The process of one probe over a device with a fault: as `npu_graph_check.child`, after it.

``python -m check_teeth.faulty_child PROBE ...``; ``CHECK_FAULT`` is the number of the fault.
"""

from __future__ import annotations

import os
import sys

from check_teeth.table import TEETH
from npu_graph_check import child

if __name__ == "__main__":
    fault = TEETH[sys.argv[1]][int(os.environ["CHECK_FAULT"])]
    if fault.apply is not None:
        fault.apply()
    child.main()
