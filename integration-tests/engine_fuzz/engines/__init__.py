"""The engines that are fuzzed: a small model, the batches of its sequences, two ways to run it."""
