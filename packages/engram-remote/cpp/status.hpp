// How the library reports: a status for the program, and on the control path one sentence for an operator.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "engram.h"

namespace engram {

using Status = engram_status;

// The result of a control-path step.  The data path returns a bare Status and builds no text.
struct Outcome {
  Status status = ENGRAM_OK;
  std::string text;

  explicit operator bool() const noexcept { return status == ENGRAM_OK; }
};

inline Outcome failure(Status status, std::string text) { return {status, std::move(text)}; }

inline std::string errno_text(int error) {
  char buffer[128];
  return ::strerror_r(error, buffer, sizeof buffer);  // the GNU form: returns the text, thread-safe
}

inline void copy_text(const std::string& from, char* to, std::size_t bytes) noexcept {
  if (to == nullptr || bytes == 0) return;
  const std::size_t length = from.size() < bytes - 1 ? from.size() : bytes - 1;
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

}  // namespace engram
