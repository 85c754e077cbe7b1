"""Kernels that engines bring for the device, as provided by the simulated device.

Modules are named after their engine and imported only for it; nothing else of cann_sim imports one.
The values are computed in ``native/engine_kernels``, each kernel as one launch that is captured,
replayed and counted like those of CANN's operators.
"""
