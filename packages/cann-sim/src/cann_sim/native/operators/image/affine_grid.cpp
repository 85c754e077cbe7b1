// Grids of places in images.

#include <ATen/ops/affine_grid_generator.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

// theta [n, 2, 3] or [n, 3, 4] moves the places of an image of `size`; places are in [-1, 1].
CANN_SIM_OPERATOR(aclnnAffineGrid, (Tensor, theta), (IntArray, size), (Bool, alignCorners), (Tensor, out)) {
  RequireDtype(theta, kFloats);
  RequireSameDtype(out, theta);
  RequireRank(theta, 3, 3);
  const std::vector<int64_t>& image = size.values();
  if (image.size() != 4 && image.size() != 5) {
    RefuseArgument(size.name(), "the size of an image of two or three dimensions", Describe(image));
  }
  const auto dims = static_cast<int64_t>(image.size()) - 2;
  RequireShape(theta, {image[0], dims, dims + 1});
  std::vector<int64_t> grid{image[0]};
  grid.insert(grid.end(), image.begin() + 2, image.end());
  grid.push_back(dims);
  if (out.numel() != c10::multiply_integers(grid)) {
    RefuseArgument(out.name(), Describe(grid), Describe(out.sizes()));
  }
  return [=] { out.Store(at::affine_grid_generator(theta.Widened(), image, alignCorners).view(out.sizes())); };
}

}  // namespace cann_sim::operators
