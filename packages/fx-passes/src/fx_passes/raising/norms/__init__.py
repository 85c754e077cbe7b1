"""RMSNorm in every spelling, raised to `npu::npu_rms_norm`."""
