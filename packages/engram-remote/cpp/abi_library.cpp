// The C ABI that belongs to neither side: the library, what this build can do, table memory.

#include <string>

#include "abi.hpp"
#include "features.hpp"
#include "ofl_library.hpp"
#include "table_memory.hpp"

using engram::guarded;

std::uint32_t engram_abi_version() noexcept { return ENGRAM_ABI_VERSION; }

std::int32_t engram_library_open(const char* libofl, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&] { return engram::open_ofl(libofl); });
}

std::int32_t engram_feature(const char* name, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&] { return engram::feature(name != nullptr ? name : ""); });
}

std::int32_t engram_memory_allocate(std::uint64_t bytes, std::uint32_t flags, void** base, char* text,
                                    std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    if ((flags & ~static_cast<std::uint32_t>(ENGRAM_MEMORY_HUGE)) != 0)
      return engram::failure(ENGRAM_INVALID, "flags of table memory has bits that are not defined");
    return engram::allocate_table_memory(bytes, (flags & ENGRAM_MEMORY_HUGE) != 0, *base);
  });
}

std::int32_t engram_memory_seal(void* base, std::uint64_t bytes, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&] { return engram::seal_table_memory(base, bytes); });
}

void engram_memory_free(void* base, std::uint64_t bytes) noexcept { engram::free_table_memory(base, bytes); }
