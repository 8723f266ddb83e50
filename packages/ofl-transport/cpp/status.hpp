// How the library reports: a status for the program, and on the control path one sentence for an operator.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "ofl.h"

namespace ofl {

using Status = ofl_status;

// The result of a control-path step.  The data path returns a bare Status and builds no text.
struct Outcome {
  Status status = OFL_OK;
  std::string text;

  explicit operator bool() const noexcept { return status == OFL_OK; }
};

inline Outcome failure(Status status, std::string text) { return {status, std::move(text)}; }

inline std::string errno_text(int error) {
  char buffer[128];
  return ::strerror_r(error, buffer, sizeof buffer);  // the GNU form: returns the text, thread-safe
}

// A sentence that takes no memory from anybody, for what must be said also where none is left.  Cut to its room.
class Clause {
 public:
  Clause() noexcept = default;
  template <typename... Pieces>
  explicit Clause(const Pieces&... pieces) noexcept {
    (add(pieces), ...);
  }
  std::string_view text() const noexcept { return {text_.data(), length_}; }

 private:
  void add(std::string_view piece) noexcept {
    const std::size_t taken = std::min(piece.size(), text_.size() - length_);
    std::copy_n(piece.data(), taken, text_.data() + length_);
    length_ += taken;
  }

  std::array<char, 384> text_{};
  std::size_t length_ = 0;
};

inline void copy_text(std::string_view from, char* to, std::size_t bytes) noexcept {
  if (to == nullptr || bytes == 0) return;
  const std::size_t length = from.size() < bytes - 1 ? from.size() : bytes - 1;
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

}  // namespace ofl
