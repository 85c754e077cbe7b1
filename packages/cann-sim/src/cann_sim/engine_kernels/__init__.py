"""Kernels that engines bring for the device, as provided by the simulated device.

One module per engine, imported only for that engine; nothing else of cann_sim imports one. The
values are computed in ``native/engine_kernels``, each kernel as one launch that is captured,
replayed and counted like those of CANN's operators.
"""
