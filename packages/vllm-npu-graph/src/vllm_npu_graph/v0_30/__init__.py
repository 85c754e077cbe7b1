"""What stands for parts of vllm-ascend 0.30, whose captured graphs update their own tasks."""
