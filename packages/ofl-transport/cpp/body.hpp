// The bytes of one message, with room in front for what travels ahead of them.  Large ones are kept for reuse: a fresh
// mapping costs a page fault every 4096 bytes, more than the copy itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "wire.hpp"

namespace ofl {

void free_body(void* body) noexcept;

struct FreeBody {
  void operator()(std::byte* body) const noexcept { free_body(body); }
};

struct Body {
  static constexpr std::size_t kLentMax = 65536;  // larger ones change hands instead of being lent
  static constexpr std::size_t kAhead = sizeof(wire::PlacementRecord);

  std::unique_ptr<std::byte, FreeBody> memory;  // kAhead bytes before it belong to it too
  std::size_t bytes = 0;
  std::size_t capacity = 0;  // a power of two, so that a binding needs few distinct types

  static Body allocate(std::size_t bytes) noexcept;  // memory is null when there is none
};

}  // namespace ofl
