// Shared by the files that implement the C ABI: no exception crosses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "status.hpp"

namespace engram {

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
    copy_text(std::string("the operating system refused: ") + error.what(), text, text_bytes);
  } catch (...) {
    copy_text("an unforeseen internal error", text, text_bytes);
  }
  return ENGRAM_SYSTEM;
}

}  // namespace engram
