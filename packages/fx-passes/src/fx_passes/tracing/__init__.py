"""A graph of one call that runs on real tensors, without Dynamo."""

from fx_passes.tracing.kernel_operator import KernelOperator
from fx_passes.tracing.traced_call import TracedCall, trace_call

__all__ = ["KernelOperator", "TracedCall", "trace_call"]
