#include "documented_argument.h"

#include <acl/acl_base.h>

#include <iterator>
#include <string>

#include "../interface/data_type.h"
#include "../interface/refusal.h"
#include "../interface/validation.h"

namespace cann_sim::operators {

namespace {

// Layouts.
constexpr uint8_t kPlain = 1;    // a format in the order of the dimensions: ND, NCHW, ...
constexpr uint8_t kNz = 2;       // FRACTAL_NZ
constexpr uint8_t kStrided = 4;  // need not be contiguous

// Names in the order of the bits: "float32, bfloat16".
std::string DescribeDataTypes(uint64_t data_types) {
  std::string names;
  for (int type = 0; type < 64; ++type) {
    if ((data_types >> type) & 1) {
      names += (names.empty() ? "" : ", ") + DescribeDataType(static_cast<aclDataType>(type));
    }
  }
  return names;
}

// "1 to 8 dimensions", or "0, 3, 4 dimensions" where some between are left out.
std::string DescribeRanks(uint16_t ranks) {
  const int least = __builtin_ctz(ranks);
  const int most = 31 - __builtin_clz(ranks);
  if (least == most) {
    return std::to_string(least) + " dimensions";
  }
  if (ranks == (2u << most) - (1u << least)) {
    return std::to_string(least) + " to " + std::to_string(most) + " dimensions";
  }
  std::string names;
  for (int rank = least; rank <= most; ++rank) {
    if ((ranks >> rank) & 1) {
      names += (names.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  return names + " dimensions";
}

bool IsIn(uint64_t data_types, aclDataType type) {
  const auto bit = static_cast<unsigned>(type);
  return bit < 64 && ((data_types >> bit) & 1);
}

void Require(const DocumentedArgument& documented, const aclTensor& tensor) {
  if (!IsIn(documented.data_types, tensor.type)) {
    if (documented.data_types == 0) {
      RefuseArgument(documented.name, "none (the device has no use for it)", DescribeDataType(tensor.type));
    }
    RefuseArgument(documented.name, "one of the dtypes " + DescribeDataTypes(documented.data_types),
                   DescribeDataType(tensor.type));
  }
  if (tensor.format == ACL_FORMAT_FRACTAL_NZ) {
    if ((documented.layouts & kNz) == 0) {
      RefuseArgument(documented.name, "a plain (ND) format", "FRACTAL_NZ");
    }
  } else if ((documented.layouts & kPlain) == 0) {
    RefuseArgument(documented.name, "the format FRACTAL_NZ",
                   "aclFormat " + std::to_string(static_cast<int>(tensor.format)));
  }
  const c10::IntArrayRef sizes = tensor.sizes;
  // Documents count the dimensions of the blocks of a tensor in the NZ format, views those of its matrix.
  if (tensor.format != ACL_FORMAT_FRACTAL_NZ && !tensor.is_placeholder() && ((documented.ranks >> tensor.rank()) & 1) == 0) {
    RefuseArgument(documented.name, DescribeRanks(documented.ranks), "shape " + Describe(sizes));
  }
  if ((documented.layouts & kStrided) == 0 && tensor.format != ACL_FORMAT_FRACTAL_NZ && !tensor.is_contiguous()) {
    RefuseArgument(documented.name, "a contiguous tensor of shape " + Describe(sizes),
                   "strides " + Describe(tensor.strides));
  }
}

}  // namespace

void RequireDocumented(const DocumentedOperator& documented, std::initializer_list<GivenArgument> given) {
  const DocumentedArgument* row = documented.arguments;
  for (const GivenArgument& argument : given) {
    if (argument.kind == GivenArgument::Kind::kTensor) {
      if (const auto* tensor = argument.as<aclTensor>()) {
        Require(*row, *tensor);
      }
      ++row;
    } else if (argument.kind == GivenArgument::Kind::kTensorList) {
      if (const auto* list = argument.as<aclTensorList>()) {
        for (const aclTensor* tensor : list->tensors) {
          if (tensor != nullptr && !tensor->is_placeholder()) {
            Require(*row, *tensor);
          }
        }
      }
      ++row;
    }
  }
}

namespace {

constexpr uint64_t Bit(aclDataType type) { return uint64_t{1} << type; }
constexpr uint16_t Ranks(int least, int most) { return static_cast<uint16_t>((2u << most) - (1u << least)); }

constexpr uint64_t FLOAT = Bit(ACL_FLOAT);
constexpr uint64_t FLOAT16 = Bit(ACL_FLOAT16);
constexpr uint64_t BF16 = Bit(ACL_BF16);
constexpr uint64_t DOUBLE = Bit(ACL_DOUBLE);
constexpr uint64_t INT4 = Bit(ACL_INT4);
constexpr uint64_t INT8 = Bit(ACL_INT8);
constexpr uint64_t INT16 = Bit(ACL_INT16);
constexpr uint64_t INT32 = Bit(ACL_INT32);
constexpr uint64_t INT64 = Bit(ACL_INT64);
constexpr uint64_t UINT1 = Bit(ACL_UINT1);
constexpr uint64_t UINT8 = Bit(ACL_UINT8);
constexpr uint64_t UINT16 = Bit(ACL_UINT16);
constexpr uint64_t UINT32 = Bit(ACL_UINT32);
constexpr uint64_t UINT64 = Bit(ACL_UINT64);
constexpr uint64_t BOOL = Bit(ACL_BOOL);
constexpr uint64_t COMPLEX32 = Bit(ACL_COMPLEX32);
constexpr uint64_t COMPLEX64 = Bit(ACL_COMPLEX64);
constexpr uint64_t COMPLEX128 = Bit(ACL_COMPLEX128);

}  // namespace

// CANN_SIM_DOCUMENTED(operator, {argument, dtypes, numbers of dimensions, layouts}...)
#define CANN_SIM_DOCUMENTED(NAME, ...)                                                              \
  namespace {                                                                                       \
  constexpr DocumentedArgument NAME##Rows[] = {__VA_ARGS__};                                        \
  }                                                                                                 \
  extern "C" {                                                                                      \
  extern __attribute__((visibility("default"))) const DocumentedOperator NAME##Documented;          \
  const DocumentedOperator NAME##Documented = {NAME##Rows, std::size(NAME##Rows)};                  \
  }
// CANN_SIM_UNDOCUMENTED(operator, reason): of this operator no facts are public; its body says what it accepts.
#define CANN_SIM_UNDOCUMENTED(NAME, REASON)

#include "documented_cv.h"
#include "documented_math.h"
#include "documented_nn.h"
#include "documented_source.h"
#include "documented_transformer.h"

}  // namespace cann_sim::operators
