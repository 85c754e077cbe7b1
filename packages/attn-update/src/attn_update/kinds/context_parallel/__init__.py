"""Attention whose keys are spread over the processes of context parallelism."""
