#include "checksum.hpp"

#ifdef ENGRAM_XXHASH
#define XXH_INLINE_ALL
#include <xxhash.h>
#else
#include <cstdlib>
#endif

namespace engram {

#ifdef ENGRAM_XXHASH

Outcome checksum_available() { return {}; }

std::uint64_t checksum(const void* bytes, std::size_t count, std::uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(bytes, count, seed);
}

#else

Outcome checksum_available() {
  return failure(ENGRAM_SYSTEM,
                 "this build computes no checksums: xxhash.h was not there when it was built (Debian: libxxhash-dev)");
}

std::uint64_t checksum(const void*, std::size_t, std::uint64_t) noexcept { std::abort(); }  // nobody gets here without asking first

#endif

}  // namespace engram
