// Which system on a chip the simulated devices are (CANN_SIM_SOC), and in what those differ here.
#pragma once

#include <cstdint>

#include "launch.h"

namespace cann_sim {

struct Soc {
  const char* name;  // as aclrtGetSocName answers
  int64_t cube_cores;
  int64_t vector_cores;
  int64_t level_2_cache_bytes;
  // Of the product family "Atlas inference products" (310P): no bfloat16, no capture, and operators that it lacks.
  bool is_inference_product;
};

CANN_SIM_EXPORT const Soc& TheSoc();

}  // namespace cann_sim
