// Checks of the workspace phase. Each throws a Refusal that names the argument, what was expected and what was found.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "argument.h"
#include "refusal.h"

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// A set of dtypes.
class DtypeSet {
 public:
  constexpr DtypeSet(std::initializer_list<c10::ScalarType> dtypes) {
    for (c10::ScalarType dtype : dtypes) {
      bits_ |= uint64_t{1} << static_cast<int>(dtype);
    }
  }

  constexpr bool contains(c10::ScalarType dtype) const { return (bits_ >> static_cast<int>(dtype)) & 1; }
  constexpr DtypeSet operator|(DtypeSet other) const {
    other.bits_ |= bits_;
    return other;
  }
  std::string Describe() const;

 private:
  uint64_t bits_ = 0;
};

// The floating point dtypes the vector and matrix units compute on.
inline constexpr DtypeSet kFloats{c10::ScalarType::BFloat16, c10::ScalarType::Half, c10::ScalarType::Float};
inline constexpr DtypeSet kHalves{c10::ScalarType::BFloat16, c10::ScalarType::Half};
inline constexpr DtypeSet kDouble{c10::ScalarType::Double};
inline constexpr DtypeSet kIntegers{c10::ScalarType::Byte, c10::ScalarType::Char, c10::ScalarType::Short,
                                    c10::ScalarType::Int, c10::ScalarType::Long};
inline constexpr DtypeSet kIndices{c10::ScalarType::Int, c10::ScalarType::Long};
inline constexpr DtypeSet kBool{c10::ScalarType::Bool};
inline constexpr DtypeSet kComplex{c10::ScalarType::ComplexFloat, c10::ScalarType::ComplexDouble};
inline constexpr DtypeSet kReals = kFloats | kDouble | kIntegers | kBool;

// Refuses an argument: "argument 'x': expected <expected>, found <found>".
[[noreturn]] void RefuseArgument(const char* name, const std::string& expected, const std::string& found);

void RequireDtype(const Tensor& tensor, DtypeSet allowed);
// Refuses a dtype that the device accepts and the simulator lacks, and says that it is the simulator that does.
void RequireSimulated(const Tensor& tensor, DtypeSet simulated);
void RequireSameDtype(const Tensor& tensor, const Tensor& reference);
void RequireRank(const Tensor& tensor, int least, int most);
void RequireShape(const Tensor& tensor, c10::IntArrayRef expected);
void RequireContiguous(const Tensor& tensor);
// `out` must have the shape that `inputs` broadcast to.
void RequireBroadcast(const Tensor& out, std::initializer_list<const Tensor*> inputs);
// A feature the device has and the simulator lacks: refused, never approximated.
void RefuseIfPresent(const OptionalTensor& tensor, const char* feature);
// `dim` counted from the front; refused outside [-rank, rank).
int64_t WrapDim(int64_t dim, int rank, const char* name = "dim");

std::string Describe(c10::IntArrayRef sizes);
// Shape of `sizes` reduced over `dims` (all of them where empty).
std::vector<int64_t> ReducedShape(c10::IntArrayRef sizes, c10::IntArrayRef dims, bool keep_dims);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
