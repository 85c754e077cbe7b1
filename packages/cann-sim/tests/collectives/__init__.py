"""Collectives between processes: real torch.distributed calls on the simulated HCCL."""
