"""A fault for each probe of npu-graph-check, which its verdict has to show."""
