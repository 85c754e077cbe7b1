// Casts between plain memory and the NZ format, and the storage that such a cast needs.

#include <new>

#include "../interface/data_type.h"
#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

constexpr int kStatusUnsupported = 361001;
constexpr int kLeastRank = 2;
constexpr int kMostRank = 6;
// A row of a block in bytes, and the rows of a block.
constexpr int64_t kBlockRowBytes = 32;
constexpr int64_t kBlockRows = 16;
// Asks for the dtype of the tensor.
constexpr int kOwnDtype = -1;

bool IsPlain(int format) {
  return format == ACL_FORMAT_ND || format == ACL_FORMAT_NCL || format == ACL_FORMAT_NCHW || format == ACL_FORMAT_NCDHW;
}

// [batch..., columns / width, rows / 16, 16, width]
Dimensions NzSizes(const Dimensions& plain, int64_t width) {
  const int rank = plain.count();
  std::vector<int64_t> sizes(plain.data(), plain.data() + rank - 2);
  sizes.push_back((plain[rank - 1] + width - 1) / width);
  sizes.push_back((plain[rank - 2] + kBlockRows - 1) / kBlockRows);
  sizes.push_back(kBlockRows);
  sizes.push_back(width);
  Dimensions result;
  result.Assign(sizes.data(), sizes.size());
  return result;
}

}  // namespace

}  // namespace cann_sim::operators

// Not one of two phases: answers at once. The caller frees `*dst_shape` with delete[], as torch_npu does.
CANN_SIM_ENTRY int aclnnNpuFormatCastCalculateSizeAndFormat(const aclTensor* source, int dst_format, int additional_dtype,
                                                            int64_t** dst_shape, uint64_t* dst_shape_size,
                                                            int* actual_format) {
  using namespace cann_sim::operators;  // NOLINT: the entry is outside every namespace
  if (source == nullptr || dst_shape == nullptr || dst_shape_size == nullptr || actual_format == nullptr) {
    return kStatusNullArgument;
  }
  const Dimensions& plain = source->sizes;
  const bool to_nz = dst_format == ACL_FORMAT_FRACTAL_NZ && IsPlain(source->format);
  const bool from_nz = source->format == ACL_FORMAT_FRACTAL_NZ && IsPlain(dst_format);
  if (plain.count() < kLeastRank || plain.count() > kMostRank) {
    return kStatusInvalidArgument;
  }
  if (!to_nz && !from_nz) {
    return kStatusUnsupported;
  }
  const auto dtype = static_cast<aclDataType>(additional_dtype == kOwnDtype ? static_cast<int>(source->type) : additional_dtype);
  int64_t bytes = 0;
  try {
    bytes = static_cast<int64_t>(c10::elementSize(ScalarTypeOf(dtype)));
  } catch (const Refusal&) {
    return kStatusInvalidArgument;
  }
  const Dimensions sizes = to_nz ? NzSizes(plain, kBlockRowBytes / bytes) : plain;
  *dst_shape = new (std::nothrow) int64_t[static_cast<size_t>(sizes.count())];
  if (*dst_shape == nullptr) {
    return kStatusInvalidArgument;
  }
  std::copy_n(sizes.data(), sizes.count(), *dst_shape);
  *dst_shape_size = static_cast<uint64_t>(sizes.count());
  *actual_format = dst_format;
  return kStatusOk;
}

namespace cann_sim::operators {

CANN_SIM_OPERATOR(aclnnNpuFormatCast, (Tensor, srcTensor), (Tensor, dstTensor)) {
  RequireDtype(srcTensor, kFloats | DtypeSet{c10::ScalarType::Char, c10::ScalarType::Byte, c10::ScalarType::Int,
                                             c10::ScalarType::UInt32});
  RequireSameDtype(dstTensor, srcTensor);
  RequireShape(dstTensor, srcTensor.sizes());
  if (srcTensor.is_nz() == dstTensor.is_nz()) {
    RefuseArgument(dstTensor.name(), "the NZ format where 'srcTensor' is plain, or a plain one where that is NZ",
                   dstTensor.is_nz() ? "both NZ" : "both plain");
  }
  return [=] { dstTensor.Store(srcTensor); };
}

}  // namespace cann_sim::operators
