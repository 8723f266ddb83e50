// Shared by the files that implement the C ABI: no exception crosses it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "clock.hpp"
#include "status.hpp"

namespace ofl {

// Longer than anybody waits.  A span is cut to it on its way in, so that no moment plus a span is past the last moment.
inline constexpr Nanoseconds kSpanMax = INT64_MAX / 2;
inline constexpr Nanoseconds span_of(std::int64_t ns) noexcept { return std::min(ns, kSpanMax); }

// An empty text was given, and is not the same as none.
inline std::optional<std::string> text_if_given(const char* text) {
  return text != nullptr ? std::optional<std::string>(text) : std::nullopt;
}

// Runs the body of a control-path function; what it throws becomes a status and a sentence.
template <typename Function>
std::int32_t guarded(char* text, std::size_t text_bytes, Function&& function) noexcept {
  try {
    const Outcome outcome = std::forward<Function>(function)();
    copy_text(outcome.text, text, text_bytes);
    return outcome.status;
  } catch (const std::bad_alloc&) {
    copy_text("out of memory", text, text_bytes);
  } catch (const std::system_error& error) {
    copy_text(Clause("the operating system refused: ", error.what()).text(), text, text_bytes);
  } catch (...) {
    copy_text("an unforeseen internal error", text, text_bytes);
  }
  return OFL_SYSTEM;
}

// The same for the data path, which has no text.
template <typename Function>
std::int32_t guarded(Function&& function) noexcept {
  try {
    return std::forward<Function>(function)();
  } catch (...) {
    return OFL_SYSTEM;
  }
}

}  // namespace ofl
