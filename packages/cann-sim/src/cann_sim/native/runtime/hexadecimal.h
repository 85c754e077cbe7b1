// Addresses in messages.
#pragma once

#include <cstdint>
#include <string>

namespace cann_sim {

// "0x7f00"; "0x" of zero.
inline std::string Hexadecimal(uintptr_t number) {
  std::string digits;
  for (; number != 0; number /= 16) {
    digits.insert(digits.begin(), "0123456789abcdef"[number % 16]);
  }
  return "0x" + digits;
}

}  // namespace cann_sim
