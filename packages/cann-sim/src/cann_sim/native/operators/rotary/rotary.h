// The rotation of rotary position embeddings, shared with the operators that are fused with it.
#pragma once

#include <ATen/core/Tensor.h>

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// Rotation modes of aclnnRotaryPositionEmbedding and its gradient that are simulated.
inline constexpr int64_t kHalf = 0;
inline constexpr int64_t kInterleave = 1;

// x * cos + rotated(x) * sin, where each pair (a, b) becomes (-b, a). The pairs are the two halves of the last dimension, or its
// neighbours where `interleave`.
at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool interleave);

// The neighbours of the last dimension become its halves.
at::Tensor SplitNeighbours(const at::Tensor& x);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
