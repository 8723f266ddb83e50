// XXH3 over the planes of a reply, where xxHash's header was there when this was built.
#pragma once

#include <cstddef>
#include <cstdint>

#include "status.hpp"

namespace engram {

Outcome checksum_available();

// XXH3, 64 bits, seed 0.  Only where checksum_available.
std::uint64_t checksum(const void* bytes, std::size_t count) noexcept;

}  // namespace engram
