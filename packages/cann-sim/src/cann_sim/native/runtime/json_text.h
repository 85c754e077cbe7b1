// Strings of JSON, as the simulator writes them into traces and coverage files.
#pragma once

#include <string>

namespace cann_sim {

// The text in quotes. Control characters become spaces.
inline std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') {
      quoted += '\\';
    }
    quoted += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
  }
  return quoted + "\"";
}

}  // namespace cann_sim
