"""Kernels that engines bring for the device, in the form that the simulated device has of them.

A module an engine, imported for that engine only; nothing else of cann_sim imports one. The values
are computed in ``native/engine_kernels``, each kernel as one launch that is captured, replayed and
counted like those of CANN's operators.
"""
