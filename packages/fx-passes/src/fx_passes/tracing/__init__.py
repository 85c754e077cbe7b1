"""A graph of one call that runs on real tensors, without Dynamo."""
