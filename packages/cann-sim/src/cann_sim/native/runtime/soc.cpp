#include "soc.h"

#include <string>

#include "configuration.h"

namespace {

using cann_sim::Soc;

constexpr int64_t kMebibyte = 1 << 20;

// What each number rests on is in docs/fidelity.md.
constexpr Soc kSocs[] = {
    {"Ascend910B1", 24, 48, 192 * kMebibyte, false},
    {"Ascend910B3", 20, 40, 192 * kMebibyte, false},
    {"Ascend910_9391", 24, 48, 192 * kMebibyte, false},
    {"Ascend310P3", 8, 7, 16 * kMebibyte, true},
};

const Soc& Chosen() {
  const std::string name = cann_sim::configuration::SocName();
  std::string known;
  for (const Soc& soc : kSocs) {
    if (name == soc.name) {
      return soc;
    }
    known += (known.empty() ? "" : " or ") + std::string(soc.name);
  }
  cann_sim::configuration::Refuse("CANN_SIM_SOC", "expected " + known + ", found '" + name + "'");
}

}  // namespace

namespace cann_sim {

const Soc& TheSoc() {
  static const Soc& soc = Chosen();
  return soc;
}

}  // namespace cann_sim
