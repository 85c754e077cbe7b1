"""Conformance of the operators: real torch.npu calls against float64."""
