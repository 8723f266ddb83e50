// Copies of a few bytes, of a size that the compiler does not know: without a call, and in moves that overlap instead of a
// loop.  Parts and bodies of small frames are copied on the way of every round trip.
#pragma once

#include <cstddef>
#include <cstring>

namespace ofl {

// Both ends of the range, which cover it: Size <= bytes <= 2 * Size.
template <std::size_t Size>
inline void copy_ends(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::byte first[Size];
  std::byte last[Size];
  std::memcpy(first, from, Size);
  std::memcpy(last, from + bytes - Size, Size);
  std::memcpy(to, first, Size);
  std::memcpy(to + bytes - Size, last, Size);
}

inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes > 64 || bytes < 8) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  } else if (bytes > 32) {
    copy_ends<32>(to, from, bytes);
  } else if (bytes > 16) {
    copy_ends<16>(to, from, bytes);
  } else {
    copy_ends<8>(to, from, bytes);
  }
}

}  // namespace ofl
