// XXH3, where xxHash's header was there when this was built: over the planes of a reply, and over what was asked, which both
// ends know and which seeds it (docs/contract/engram-v1.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "status.hpp"

namespace engram {

Outcome checksum_available();

// XXH3, 64 bits.  Only where checksum_available.
std::uint64_t checksum(const void* bytes, std::size_t count, std::uint64_t seed) noexcept;

}  // namespace engram
