// Buffers that O_DIRECT takes: page-aligned, never moved.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace engram {

inline constexpr std::size_t kBufferAlignment = 4096;  // at least every dio_mem_align that block devices have

struct FreeAligned {
  void operator()(std::byte* base) const noexcept { std::free(base); }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;

inline AlignedBytes aligned_bytes(std::size_t bytes) {
  void* const base = std::aligned_alloc(kBufferAlignment, (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment);
  if (base == nullptr) throw std::bad_alloc();
  return AlignedBytes(static_cast<std::byte*>(base));
}

}  // namespace engram
