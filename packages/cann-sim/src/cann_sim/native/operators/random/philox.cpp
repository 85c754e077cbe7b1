#include "philox.h"

#include <ATen/ops/empty.h>

#include <cmath>

namespace cann_sim::operators {

namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;
constexpr double kTwoPi = 6.283185307179586476925;

double Fraction(uint32_t word) { return static_cast<double>(word >> 8) * 0x1p-24; }

}  // namespace

std::array<uint32_t, 4> Philox(PhiloxState state, uint64_t index) {
  std::array<uint32_t, 4> counter = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                     static_cast<uint32_t>(state.offset), static_cast<uint32_t>(state.offset >> 32)};
  auto key0 = static_cast<uint32_t>(state.seed);
  auto key1 = static_cast<uint32_t>(state.seed >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

at::Tensor UniformValues(PhiloxState state, int64_t count, int64_t first) {
  at::Tensor values = at::empty({count}, at::kDouble);
  double* data = values.mutable_data_ptr<double>();
  for (int64_t block = 0; block * 4 < count; ++block) {
    const auto words = Philox(state, static_cast<uint64_t>(first / 4 + block));
    for (int64_t lane = 0; lane < 4 && block * 4 + lane < count; ++lane) {
      data[block * 4 + lane] = Fraction(words[static_cast<size_t>(lane)]);
    }
  }
  return values;
}

at::Tensor NormalValues(PhiloxState state, int64_t count, int64_t first) {
  at::Tensor values = at::empty({count}, at::kDouble);
  double* data = values.mutable_data_ptr<double>();
  for (int64_t pair = 0; pair * 2 < count; ++pair) {
    const auto words = Philox(state, static_cast<uint64_t>(first / 2 + pair));
    const double radius = std::sqrt(-2.0 * std::log(1.0 - Fraction(words[0])));
    const double angle = kTwoPi * Fraction(words[1]);
    data[pair * 2] = radius * std::cos(angle);
    if (pair * 2 + 1 < count) {
      data[pair * 2 + 1] = radius * std::sin(angle);
    }
  }
  return values;
}

at::Tensor IntegerValues(PhiloxState state, int64_t count, int64_t first) {
  at::Tensor values = at::empty({count}, at::kLong);
  int64_t* data = values.mutable_data_ptr<int64_t>();
  for (int64_t index = 0; index < count; ++index) {
    const auto words = Philox(state, static_cast<uint64_t>(first + index));
    data[index] = static_cast<int64_t>(((uint64_t{words[0]} << 32) | words[1]) >> 1);
  }
  return values;
}

}  // namespace cann_sim::operators
