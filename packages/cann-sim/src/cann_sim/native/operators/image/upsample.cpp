// Resizing of images: computed in float32, rounded once. A scale of at most 0 means none was given.

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward.h>
#include <ATen/ops/_upsample_nearest_exact1d.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward.h>
#include <ATen/ops/_upsample_nearest_exact2d.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward.h>
#include <ATen/ops/_upsample_nearest_exact3d.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bicubic2d_backward.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_bilinear2d_backward.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_linear1d_backward.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest1d_backward.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest2d_backward.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_nearest3d_backward.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <ATen/ops/upsample_trilinear3d_backward.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

// Picks one of the overloads that take a list of integers.
c10::IntArrayRef Size(const IntArray& size) { return size; }

std::optional<double> Scale(double scale) { return scale > 0 ? std::optional(scale) : std::nullopt; }

void RequireImages(const Tensor& self, int dims) {
  RequireSimulated(self, kFloats | kDouble | DtypeSet{c10::ScalarType::Byte});
  RequireRank(self, dims + 2, dims + 2);
}

}  // namespace

CANN_SIM_OPERATOR(aclnnUpsampleNearest1dV2, (Tensor, self), (IntArray, outputSize), (Float, scales), (Tensor, out)) {
  RequireImages(self, 1);
  return [=] { out.Store(at::upsample_nearest1d(self.Widened(), Size(outputSize), Scale(scales))); };
}
CANN_SIM_OPERATOR(aclnnUpsampleNearest1dBackward, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Double, scales), (Tensor, gradInput)) {
  RequireImages(gradOut, 1);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::upsample_nearest1d_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                    Scale(scales)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleNearest2dV2, (Tensor, self), (IntArray, outputSize), (Float, scalesH), (Float, scalesW),
                  (Tensor, out)) {
  RequireImages(self, 2);
  return [=] { out.Store(at::upsample_nearest2d(self.Widened(), Size(outputSize), Scale(scalesH), Scale(scalesW))); };
}
CANN_SIM_OPERATOR(aclnnUpsampleNearest2dBackward, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Double, scalesH), (Double, scalesW), (Tensor, gradInput)) {
  RequireImages(gradOut, 2);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::upsample_nearest2d_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                    Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleNearest3d, (Tensor, self), (IntArray, outputSize), (Double, scalesD), (Double, scalesH),
                  (Double, scalesW), (Tensor, out)) {
  RequireImages(self, 3);
  return [=] {
    out.Store(at::upsample_nearest3d(self.Widened(), Size(outputSize), Scale(scalesD), Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleNearest3dBackward, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Double, scalesD), (Double, scalesH), (Double, scalesW), (Tensor, gradInput)) {
  RequireImages(gradOut, 3);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::upsample_nearest3d_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                    Scale(scalesD), Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleNearestExact1d, (Tensor, self), (IntArray, outputSize), (Double, scales),
                  (Tensor, out)) {
  RequireImages(self, 1);
  return [=] { out.Store(at::_upsample_nearest_exact1d(self.Widened(), Size(outputSize), Scale(scales))); };
}
CANN_SIM_OPERATOR(aclnnUpsampleNearestExact1dBackward, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Double, scales), (Tensor, gradInput)) {
  RequireImages(gradOut, 1);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::_upsample_nearest_exact1d_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                           Scale(scales)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleNearestExact2d, (Tensor, self), (IntArray, outputSize), (Double, scalesH),
                  (Double, scalesW), (Tensor, out)) {
  RequireImages(self, 2);
  return [=] {
    out.Store(at::_upsample_nearest_exact2d(self.Widened(), Size(outputSize), Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleNearestExact2dBackward, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Double, scalesH), (Double, scalesW), (Tensor, gradInput)) {
  RequireImages(gradOut, 2);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::_upsample_nearest_exact2d_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                           Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleNearestExact3d, (Tensor, self), (IntArray, outputSize), (Double, scalesD),
                  (Double, scalesH), (Double, scalesW), (Tensor, out)) {
  RequireImages(self, 3);
  return [=] {
    out.Store(at::_upsample_nearest_exact3d(self.Widened(), Size(outputSize), Scale(scalesD), Scale(scalesH),
                                            Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleNearestExact3dBackward, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Double, scalesD), (Double, scalesH), (Double, scalesW), (Tensor, gradInput)) {
  RequireImages(gradOut, 3);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::_upsample_nearest_exact3d_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                           Scale(scalesD), Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleLinear1d, (Tensor, self), (IntArray, outputSize), (Bool, alignCorners), (Double, scales),
                  (Tensor, out)) {
  RequireImages(self, 1);
  return [=] { out.Store(at::upsample_linear1d(self.Widened(), Size(outputSize), alignCorners, Scale(scales))); };
}
CANN_SIM_OPERATOR(aclnnUpsampleLinear1dBackward, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Bool, alignCorners), (Double, scales), (Tensor, gradInput)) {
  RequireImages(gradOut, 1);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::upsample_linear1d_backward(gradOut.Widened(), Size(outputSize), Size(inputSize), alignCorners,
                                                   Scale(scales)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleBilinear2d, (Tensor, self), (IntArray, outputSize), (Bool, alignCorners),
                  (Double, scalesH), (Double, scalesW), (Tensor, out)) {
  RequireImages(self, 2);
  return [=] {
    out.Store(at::upsample_bilinear2d(self.Widened(), Size(outputSize), alignCorners, Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleBilinear2dBackward, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Bool, alignCorners), (Double, scalesH), (Double, scalesW), (Tensor, gradInput)) {
  RequireImages(gradOut, 2);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::upsample_bilinear2d_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                     alignCorners, Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleBilinear2dBackwardV2, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Bool, alignCorners), (Double, scalesH), (Double, scalesW), (Tensor, gradInput)) {
  RequireImages(gradOut, 2);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::upsample_bilinear2d_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                     alignCorners, Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleBilinear2dAA, (Tensor, self), (IntArray, outputSize), (Bool, alignCorners),
                  (Double, scalesH), (Double, scalesW), (Tensor, out)) {
  RequireImages(self, 2);
  return [=] {
    out.Store(at::_upsample_bilinear2d_aa(self.Widened(), Size(outputSize), alignCorners, Scale(scalesH),
                                          Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleBilinear2dAABackward, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Bool, alignCorners), (Double, scalesH), (Double, scalesW), (Tensor, gradInput)) {
  RequireImages(gradOut, 2);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::_upsample_bilinear2d_aa_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                         alignCorners, Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleBicubic2d, (Tensor, self), (IntArray, outputSize), (Bool, alignCorners),
                  (Double, scalesH), (Double, scalesW), (Tensor, out)) {
  RequireImages(self, 2);
  return [=] {
    out.Store(at::upsample_bicubic2d(self.Widened(), Size(outputSize), alignCorners, Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleBicubic2dBackward, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Bool, alignCorners), (Double, scalesH), (Double, scalesW), (Tensor, gradInput)) {
  RequireImages(gradOut, 2);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::upsample_bicubic2d_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                    alignCorners, Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleBicubic2dAA, (Tensor, self), (IntArray, outputSize), (Bool, alignCorners),
                  (Double, scalesH), (Double, scalesW), (Tensor, out)) {
  RequireImages(self, 2);
  return [=] {
    out.Store(at::_upsample_bicubic2d_aa(self.Widened(), Size(outputSize), alignCorners, Scale(scalesH),
                                         Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleBicubic2dAAGrad, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Bool, alignCorners), (Double, scalesH), (Double, scalesW), (Tensor, gradInput)) {
  RequireImages(gradOut, 2);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::_upsample_bicubic2d_aa_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                        alignCorners, Scale(scalesH), Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleTrilinear3d, (Tensor, self), (IntArray, outputSize), (Bool, alignCorners),
                  (Double, scalesD), (Double, scalesH), (Double, scalesW), (Tensor, out)) {
  RequireImages(self, 3);
  return [=] {
    out.Store(at::upsample_trilinear3d(self.Widened(), Size(outputSize), alignCorners, Scale(scalesD), Scale(scalesH),
                                       Scale(scalesW)));
  };
}
CANN_SIM_OPERATOR(aclnnUpsampleTrilinear3dBackward, (Tensor, gradOut), (IntArray, outputSize), (IntArray, inputSize),
                  (Bool, alignCorners), (Double, scalesD), (Double, scalesH), (Double, scalesW), (Tensor, gradInput)) {
  RequireImages(gradOut, 3);
  RequireShape(gradInput, inputSize);
  return [=] {
    gradInput.Store(at::upsample_trilinear3d_backward(gradOut.Widened(), Size(outputSize), Size(inputSize),
                                                      alignCorners, Scale(scalesD), Scale(scalesH), Scale(scalesW)));
  };
}

}  // namespace cann_sim::operators
