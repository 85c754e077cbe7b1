// Values of images at places between their pixels.

#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/grid_sampler_3d.h>
#include <ATen/ops/grid_sampler_3d_backward.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

constexpr int kBicubic = 2, kReflection = 2;

// Images [n, c, size...] and places [n, size of the result..., dims].
void RequireImagesAndGrid(const Tensor& input, const Tensor& grid, int dims, const Int& interpolation, const Int& padding,
                          DtypeSet allowed) {
  RequireDtype(input, allowed);
  RequireSameDtype(grid, input);
  RequireRank(input, dims + 2, dims + 2);
  RequireRank(grid, dims + 2, dims + 2);
  if (grid.size(0) != input.size(0) || grid.size(-1) != dims) {
    RefuseArgument(grid.name(), "[" + std::to_string(input.size(0)) + ", ..., " + std::to_string(dims) + "]",
                   Describe(grid.sizes()));
  }
  const int last = dims == 2 ? kBicubic : kBicubic - 1;
  if (interpolation < 0 || interpolation > last) {
    RefuseArgument(interpolation.name(), "0 to " + std::to_string(last), std::to_string(interpolation));
  }
  if (padding < 0 || padding > kReflection) {
    RefuseArgument(padding.name(), "0 (zeros), 1 (border) or 2 (reflection)", std::to_string(padding));
  }
}

void RequireSampled(const Tensor& out, const Tensor& input, const Tensor& grid) {
  std::vector<int64_t> sizes{input.size(0), input.size(1)};
  sizes.insert(sizes.end(), grid.sizes().begin() + 1, grid.sizes().end() - 1);
  RequireShape(out, sizes);
}

}  // namespace

#define CANN_SIM_GRID_SAMPLER(Dims, GradientDtypes)                                                                    \
  CANN_SIM_OPERATOR(aclnnGridSampler##Dims##D, (Tensor, input), (Tensor, grid), (Int, interpolationMode),              \
                    (Int, paddingMode), (Bool, alignCorners), (Tensor, out)) {                                         \
    RequireImagesAndGrid(input, grid, Dims, interpolationMode, paddingMode, kFloats | kDouble);                        \
    RequireSampled(out, input, grid);                                                                                  \
    return [=] {                                                                                                       \
      out.Store(at::grid_sampler_##Dims##d(input.Widened(), grid.Widened(), interpolationMode, paddingMode,            \
                                           alignCorners));                                                             \
    };                                                                                                                 \
  }                                                                                                                    \
  CANN_SIM_OPERATOR(aclnnGridSampler##Dims##DBackward, (Tensor, gradOutput), (Tensor, input), (Tensor, grid),          \
                    (Int, interpolationMode), (Int, paddingMode), (Bool, alignCorners), (BoolArray, outputMask),       \
                    (OptionalTensor, inputGrad), (OptionalTensor, gridGrad)) {                                         \
    RequireImagesAndGrid(input, grid, Dims, interpolationMode, paddingMode, GradientDtypes);                           \
    RequireSampled(gradOutput, input, grid);                                                                           \
    return [=] {                                                                                                       \
      const auto [of_input, of_grid] = at::grid_sampler_##Dims##d_backward(                                            \
          gradOutput.Widened(), input.Widened(), grid.Widened(), interpolationMode, paddingMode, alignCorners,         \
          {true, true});                                                                                               \
      if (inputGrad && outputMask.values()[0]) {                                                                       \
        inputGrad->Store(of_input);                                                                                    \
      }                                                                                                                \
      if (gridGrad && outputMask.values()[1]) {                                                                        \
        gridGrad->Store(of_grid);                                                                                      \
      }                                                                                                                \
    };                                                                                                                 \
  }

CANN_SIM_GRID_SAMPLER(2, (DtypeSet{c10::ScalarType::Half, c10::ScalarType::Float}))
CANN_SIM_GRID_SAMPLER(3, kFloats | kDouble)

}  // namespace cann_sim::operators
