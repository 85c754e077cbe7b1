// Pooling and its gradients: averages are computed in float32 and rounded once.

#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward.h>
#include <ATen/ops/_adaptive_avg_pool3d.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/adaptive_max_pool2d_backward.h>
#include <ATen/ops/adaptive_max_pool3d.h>
#include <ATen/ops/adaptive_max_pool3d_backward.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/avg_pool3d_backward.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices_backward.h>
#include <ATen/ops/max_unpool2d.h>
#include <ATen/ops/max_unpool3d.h>
#include <ATen/ops/zeros.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

constexpr DtypeSet kPooled = kFloats | kDouble;

void RequirePooled(const Tensor& self, int dims) {
  RequireSimulated(self, kPooled);
  RequireRank(self, dims + 1, dims + 2);
}

// A divisor of 0 means the number of values in the window.
std::optional<int64_t> Divisor(int64_t divisor) { return divisor == 0 ? std::nullopt : std::optional<int64_t>(divisor); }

at::Tensor Positions(const Tensor& indices) { return at::Tensor(indices).to(at::kLong).contiguous(); }

}  // namespace

#define CANN_SIM_ADAPTIVE_AVERAGE(dims)                                                                              \
  CANN_SIM_OPERATOR(aclnnAdaptiveAvgPool##dims##d, (Tensor, self), (IntArray, outputSize), (Tensor, out)) {          \
    RequirePooled(self, dims);                                                                                       \
    RequireSameDtype(out, self);                                                                                     \
    return [=] { out.Store(at::_adaptive_avg_pool##dims##d(self.Widened(), outputSize)); };                          \
  }                                                                                                                  \
  CANN_SIM_OPERATOR(aclnnAdaptiveAvgPool##dims##dBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, out)) {    \
    RequirePooled(self, dims);                                                                                       \
    RequireShape(out, self.sizes());                                                                                 \
    return [=] { out.Store(at::_adaptive_avg_pool##dims##d_backward(gradOutput.Widened(), self.Widened())); };       \
  }                                                                                                                  \
  CANN_SIM_OPERATOR(aclnnAdaptiveMaxPool##dims##d, (Tensor, self), (IntArray, outputSize), (Tensor, out),            \
                    (Tensor, indices)) {                                                                             \
    RequirePooled(self, dims);                                                                                       \
    RequireSameDtype(out, self);                                                                                     \
    return [=] {                                                                                                     \
      const auto [values, positions] = at::adaptive_max_pool##dims##d(self.Widened(), outputSize);                   \
      out.Store(values);                                                                                             \
      indices.Store(positions);                                                                                      \
    };                                                                                                               \
  }                                                                                                                  \
  CANN_SIM_OPERATOR(aclnnAdaptiveMaxPool##dims##dBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, indices),  \
                    (Tensor, gradInput)) {                                                                           \
    RequirePooled(self, dims);                                                                                       \
    RequireShape(gradInput, self.sizes());                                                                           \
    return [=] {                                                                                                     \
      gradInput.Store(                                                                                               \
          at::adaptive_max_pool##dims##d_backward(gradOutput.Widened(), self.Widened(), Positions(indices)));        \
    };                                                                                                               \
  }

CANN_SIM_ADAPTIVE_AVERAGE(2)
CANN_SIM_ADAPTIVE_AVERAGE(3)

CANN_SIM_OPERATOR(aclnnAvgPool2d, (Tensor, self), (IntArray, kernelSize), (IntArray, stride), (IntArray, padding),
                  (Bool, ceilMode), (Bool, countIncludePad), (Int, divisorOverride), (Int8, cubeMathType), (Tensor, out)) {
  RequirePooled(self, 2);
  return [=] {
    out.Store(at::avg_pool2d(self.Widened(), kernelSize, stride, padding, ceilMode, countIncludePad,
                             Divisor(divisorOverride)));
  };
}
CANN_SIM_OPERATOR(aclnnAvgPool2dBackward, (Tensor, gradOutput), (Tensor, self), (IntArray, kernelSize), (IntArray, stride),
                  (IntArray, padding), (Bool, ceilMode), (Bool, countIncludePad), (Int, divisorOverride),
                  (Int8, cubeMathType), (Tensor, gradInput)) {
  RequirePooled(self, 2);
  RequireShape(gradInput, self.sizes());
  return [=] {
    gradInput.Store(at::avg_pool2d_backward(gradOutput.Widened(), self.Widened(), kernelSize, stride, padding, ceilMode,
                                            countIncludePad, Divisor(divisorOverride)));
  };
}
CANN_SIM_OPERATOR(aclnnAvgPool3d, (Tensor, self), (IntArray, kernelSize), (IntArray, stride), (IntArray, padding),
                  (Bool, ceilMode), (Bool, countIncludePad), (Int, divisorOverride), (Tensor, out)) {
  RequirePooled(self, 3);
  return [=] {
    out.Store(at::avg_pool3d(self.Widened(), kernelSize, stride, padding, ceilMode, countIncludePad,
                             Divisor(divisorOverride)));
  };
}
CANN_SIM_OPERATOR(aclnnAvgPool3dBackward, (Tensor, gradOutput), (Tensor, self), (IntArray, kernelSize), (IntArray, stride),
                  (IntArray, padding), (Bool, ceilMode), (Bool, countIncludePad), (Int, divisorOverride),
                  (Tensor, gradInput)) {
  RequirePooled(self, 3);
  RequireShape(gradInput, self.sizes());
  return [=] {
    gradInput.Store(at::avg_pool3d_backward(gradOutput.Widened(), self.Widened(), kernelSize, stride, padding, ceilMode,
                                            countIncludePad, Divisor(divisorOverride)));
  };
}

#define CANN_SIM_MAX_POOL(Name, dims)                                                                                 \
  CANN_SIM_OPERATOR(aclnn##Name, (Tensor, self), (IntArray, kernelSize), (IntArray, stride), (IntArray, padding),     \
                    (IntArray, dilation), (Bool, ceilMode), (Tensor, out), (Tensor, indices)) {                       \
    RequirePooled(self, dims);                                                                                        \
    RequireSameDtype(out, self);                                                                                      \
    RequireShape(indices, out.sizes());                                                                               \
    return [=] {                                                                                                      \
      const auto [values, positions] = at::max_pool##dims##d_with_indices(self.Widened(), kernelSize, stride, padding, \
                                                                          dilation, ceilMode);                        \
      out.Store(values);                                                                                              \
      indices.Store(positions);                                                                                       \
    };                                                                                                                \
  }                                                                                                                   \
  CANN_SIM_OPERATOR(aclnn##Name##Backward, (Tensor, gradOutput), (Tensor, self), (Tensor, indices),                   \
                    (IntArray, kernelSize), (IntArray, stride), (IntArray, padding), (IntArray, dilation),            \
                    (Bool, ceilMode), (Tensor, gradInput)) {                                                          \
    RequirePooled(self, dims);                                                                                        \
    RequireShape(gradInput, self.sizes());                                                                            \
    return [=] {                                                                                                      \
      gradInput.Store(at::max_pool##dims##d_with_indices_backward(gradOutput.Widened(), self.Widened(), kernelSize,   \
                                                                  stride, padding, dilation, ceilMode,                \
                                                                  Positions(indices)));                               \
    };                                                                                                                \
  }

CANN_SIM_MAX_POOL(MaxPool3dWithArgmax, 3)

namespace {

// One bit for each place of the window (rows) and each output (columns): set where the largest value was.
at::Tensor WindowMask(const at::Tensor& positions, const Tensor& self, const IntArray& kernel, const IntArray& stride,
                      const IntArray& padding, const IntArray& dilation, const Tensor& mask) {
  const int64_t width = self.size(-1);
  const int64_t columns = positions.size(-1);
  const at::Tensor flat = positions.reshape({-1, positions.size(-2) * columns});
  const at::Tensor bits = at::zeros({flat.size(0), mask.size(-2), mask.size(-1)}, at::kByte);
  const int64_t* place = flat.const_data_ptr<int64_t>();
  auto bit = bits.accessor<uint8_t, 3>();
  for (int64_t plane = 0; plane < flat.size(0); ++plane) {
    for (int64_t output = 0; output < flat.size(1); ++output) {
      const int64_t position = *place++;
      const int64_t top = output / columns * stride.values()[0] - padding.values()[0];
      const int64_t left = output % columns * stride.values()[1] - padding.values()[1];
      const int64_t row = (position / width - top) / dilation.values()[0];
      const int64_t column = (position % width - left) / dilation.values()[1];
      bit[plane][row * kernel.values()[1] + column][output / 8] |= static_cast<uint8_t>(1U << (output % 8));
    }
  }
  return bits.view(mask.sizes());
}

void RequirePairs(std::initializer_list<const IntArray*> arrays) {
  for (const IntArray* array : arrays) {
    if (array->values().size() != 2) {
      RefuseArgument(array->name(), "two numbers", Describe(*array));
    }
  }
}

}  // namespace

// The form of max pooling whose second result is a mask for the backward pass, not indices.
CANN_SIM_OPERATOR(aclnnMaxPool2dWithMask, (Tensor, self), (IntArray, kernelSize), (IntArray, stride), (IntArray, padding),
                  (IntArray, dilation), (Bool, ceilMode), (Tensor, out), (Tensor, indices)) {
  RequirePooled(self, 2);
  RequireSameDtype(out, self);
  RequireSimulated(indices, {c10::ScalarType::Char});
  RequirePairs({&kernelSize, &stride, &padding, &dilation});
  return [=] {
    const auto [values, positions] =
        at::max_pool2d_with_indices(self.Widened(), kernelSize, stride, padding, dilation, ceilMode);
    out.Store(values);
    indices.Store(WindowMask(positions, self, kernelSize, stride, padding, dilation, indices).view(at::kChar));
  };
}
// The mask follows from `self`, from which the places of the largest values are found again.
CANN_SIM_OPERATOR(aclnnMaxPool2dWithMaskBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, indices),
                  (IntArray, kernelSize), (IntArray, stride), (IntArray, padding), (IntArray, dilation),
                  (Bool, ceilMode), (Tensor, gradInput)) {
  RequirePooled(self, 2);
  RequireShape(gradInput, self.sizes());
  return [=] {
    const at::Tensor wide = self.Widened();
    const at::Tensor positions =
        std::get<1>(at::max_pool2d_with_indices(wide, kernelSize, stride, padding, dilation, ceilMode));
    gradInput.Store(at::max_pool2d_with_indices_backward(gradOutput.Widened(), wide, kernelSize, stride, padding, dilation,
                                                         ceilMode, positions));
  };
}

// As with a mask, but with the places of the largest values in each image.
CANN_SIM_OPERATOR(aclnnMaxPool2dWithIndices, (Tensor, self), (IntArray, kernelSize), (IntArray, stride),
                  (IntArray, padding), (IntArray, dilation), (Bool, ceilMode), (Tensor, out), (Tensor, indices)) {
  RequirePooled(self, 2);
  RequireSameDtype(out, self);
  RequireDtype(indices, kIndices);
  RequireShape(indices, out.sizes());
  RequirePairs({&kernelSize, &stride, &padding, &dilation});
  return [=] {
    const auto [values, positions] =
        at::max_pool2d_with_indices(self.Widened(), kernelSize, stride, padding, dilation, ceilMode);
    out.Store(values);
    indices.Store(positions);
  };
}
CANN_SIM_OPERATOR(aclnnMaxPool2dWithIndicesBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, indices),
                  (IntArray, kernelSize), (IntArray, stride), (IntArray, padding), (IntArray, dilation),
                  (Bool, ceilMode), (Tensor, gradInput)) {
  RequirePooled(self, 2);
  RequireDtype(indices, kIndices);
  RequireShape(indices, gradOutput.sizes());
  RequireShape(gradInput, self.sizes());
  return [=] {
    gradInput.Store(at::max_pool2d_with_indices_backward(gradOutput.Widened(), self.Widened(), kernelSize, stride,
                                                         padding, dilation, ceilMode, Positions(indices)));
  };
}

CANN_SIM_OPERATOR(aclnnMaxUnpool2d, (Tensor, self), (Tensor, indices), (IntArray, outputSize), (Tensor, out)) {
  RequirePooled(self, 2);
  RequireShape(indices, self.sizes());
  return [=] { out.Store(at::max_unpool2d(self, Positions(indices), outputSize)); };
}
CANN_SIM_OPERATOR(aclnnMaxUnpool3d, (Tensor, self), (Tensor, indices), (IntArray, outputSize), (IntArray, stride),
                  (IntArray, padding), (Tensor, out)) {
  RequirePooled(self, 3);
  RequireShape(indices, self.sizes());
  return [=] { out.Store(at::max_unpool3d(self, Positions(indices), outputSize, stride, padding)); };
}

}  // namespace cann_sim::operators
