"""What stands for parts of vllm-ascend 0.23, and of 0.26, which has the same ones."""
